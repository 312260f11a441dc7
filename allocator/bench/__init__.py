"""Making inputs and measuring: generators of snapshots and workloads, the benchmark harness."""
