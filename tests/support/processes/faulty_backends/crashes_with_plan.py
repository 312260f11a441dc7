"""Reports a plan and then reads from address 0."""

import ctypes

import numpy as np


def solve(model, limits, hint, report):
    report(np.eye(1, model.n)[0], 7.0)
    ctypes.string_at(0)
