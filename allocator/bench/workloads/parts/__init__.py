"""Parts that the generators of workloads share."""
