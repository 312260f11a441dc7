"""Several intervals ahead: plans of jobs, priced by dynamic programming."""
