"""Calls of Slurm's commands. No answer is not an empty answer: every failure is an error."""

from __future__ import annotations

import os
import re
import subprocess
import time

from allocator.clusters.adapter import ClusterUnreachable

TIMEOUT_S = 60.0
TRIES = 3
PAUSE_S = 1.0  # before another try
BUSY = re.compile(r"temporarily unavailable|Socket timed out", re.IGNORECASE)
# ids of array tasks are written in full, and times as seconds
ENVIRONMENT = {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def run_slurm(*argv: str, timeout_s: float = TIMEOUT_S) -> str:
    """Return the standard output of a command of Slurm.

    A controller that is busy for a moment is asked again.

    Parameters
    ----------
    *argv : str
        The command and its arguments.
    timeout_s : float
        Seconds to wait for each answer.

    Raises
    ------
    ClusterUnreachable
        If there is no such command, no answer in time, or an error.
    """
    for turn in range(TRIES):
        try:
            done = subprocess.run(
                argv,
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterUnreachable(f"{argv[0]}: no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise ClusterUnreachable(
                f"{argv[0]} cannot be run: {error.strerror or error};"
                " are Slurm's commands installed here?"
            ) from error
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "replace")
        said = done.stderr.decode("utf-8", "replace").strip()
        if not BUSY.search(said):
            break
        if turn < TRIES - 1:
            time.sleep(PAUSE_S)
    said = said or f"exit code {done.returncode}, no message"
    raise ClusterUnreachable(f"{' '.join(argv[:2])}: {said}")
