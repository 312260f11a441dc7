"""Sweeps: workloads x loads x policies x seeds as resumable tasks.

A task is named by its content and runs in its own process:

    tasks = grid(sources, policies, 10, SimulationOptions())
    with SweepStore("results") as store:
        failed = sweep(tasks, store, on_processes(workers=4))
        write_tables(store, tasks, "greedy")

Tasks that the store already has are not run again. `grid` is in tasks.py, `SweepStore` and
`sweep` in store.py, and `write_tables` in tables.py, which uses allocator.bench.paired. Executors
are in executors.py. docs/policies.md explains how to run and read a sweep.
"""
