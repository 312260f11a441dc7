"""Sleeps inside a C function without letting any other Python thread of its process run."""

import ctypes


def solve(*_):
    ctypes.PyDLL(None).sleep(600)
