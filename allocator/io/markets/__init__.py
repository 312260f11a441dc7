"""Readers of published spot markets: prices and availability over time.

To add a format, write a module with two functions, and add one line to `MARKETS` of io/formats.py:

    recognise(source: Path) -> str
        Return "" if the source has this format, and the reason if not. It reads only the beginning
        of the file, and never raises.

    read(source: Path, options: MarketOptions) -> MarketHistory
        Return steps of GPUs and prices by pool, with notes and warnings.

`run.import_markets` cuts the window, names the pools and checks the prices, and `run.write_market`
writes capacity.csv and prices.csv, for every format alike. tests/io/test_markets_seam.py runs every
registered format through the same checks.
"""
