"""Starts a process that sleeps, and waits for it."""

import subprocess


def solve(model, limits, hint, report):
    subprocess.run(["sleep", "600"], check=True)
