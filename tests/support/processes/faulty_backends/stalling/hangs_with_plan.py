"""Reports a plan, a better one, a worse one, one that breaks a row, and bounds; then never
returns.
"""

import time

import numpy as np


def solve(model, limits, hint, report):
    def plan(*columns):
        x = np.zeros(model.n)
        x[list(columns)] = 1.0
        return x

    report(plan(0), 100.0)
    report(plan(1), 20.0)
    report(None, 30.0)
    report(plan(2), 50.0)
    report(plan(0, 1, 2), 50.0)
    while True:
        time.sleep(1)
