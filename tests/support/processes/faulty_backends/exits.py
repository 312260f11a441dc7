"""Ends its process with last words."""

import os


def solve(*_):
    os.write(2, b"out of patience")
    os._exit(3)
