"""Reports of the solver benchmarks."""
