"""Sleeps inside a C function without letting any other Python thread of its process run."""

import ctypes


def solve(model, limits, hint, report):
    ctypes.PyDLL(None).sleep(600)
