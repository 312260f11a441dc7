"""Workloads x loads x policies x seeds: tasks named by their content, each in a process of its own,
resumable.

    tasks = grid(sources, policies, 10, Options())            tasks.py; options of
        allocator.simulator
    with Store("results") as store:                           store.py: what is there is not run
        again
        done = sweep(tasks, store, Processes(workers=4))      sweep.py, executors.py, on_dask.py
        write_tables(store, tasks, "greedy")                  tables.py, from allocator.bench.paired

How to run and read it: docs/benchmark-policies.md.
"""
