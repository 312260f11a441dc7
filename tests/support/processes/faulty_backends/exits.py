"""Ends its process with last words."""

import os


def solve(model, limits, hint, report):
    os.write(2, b"out of patience")
    os._exit(3)
