"""Generators of snapshots and workloads, and the benchmarks of solvers and policies."""
