"""Readers of published spot markets: prices and availability over time, for the pools of a
workload.

The seam (how to add a format): one module with two functions, and one line in `registry.MARKETS`.

    recognise(source: Path) -> str                          "" = mine, else why not; sees the head
        only, never raises
    read(source: Path, options: Options) -> Market          steps of GPUs and prices by pool, and
        what was noticed

`run.import_markets` cuts the window, names the pools, checks prices and writes capacity.csv and
prices.csv, alike for every format. tests/io/test_markets_seam.py runs every registered format
through the same checks.
"""
