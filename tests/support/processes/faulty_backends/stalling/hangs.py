"""Never returns."""

import time


def solve(model, limits, hint, report):
    while True:
        time.sleep(1)
