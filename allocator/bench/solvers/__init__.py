"""The solver benchmarks: instances, engines, measurements in processes."""
