"""Calls of Slurm's commands. No answer is not an empty answer: every failure is an error."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping

from allocator.clusters.adapter import ClusterUnreachable

TIMEOUT_S = 60.0
TRIES = 3
PAUSE_S = 1.0  # before another try
BUSY = re.compile(r"temporarily unavailable|Socket timed out", re.IGNORECASE)
# answers after which the same command may succeed later
TRY_AGAIN = re.compile(
    "Unable to contact|[Cc]onnect|timed out|temporarily|Zero Bytes|Transport endpoint|"
    "[Mm]essage|[Cc]ommunication|slurmctld"
)
# ids of array tasks are written in full, and times as seconds
ENVIRONMENT = {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


class SlurmUnreachable(ClusterUnreachable, OSError):
    """Slurm does not answer now. What was asked may have been done, or may not."""


class SlurmRefused(SlurmUnreachable):
    """Slurm understood the command and refuses it."""


def call_slurm(
    *command: str,
    environment: Mapping[str, str],
    timeout_s: float,
    stdin: str = "",
    named_by: int = 1,
) -> str:
    """Return what a command of Slurm prints; `named_by` of its words name it in errors.

    Raises SlurmUnreachable where it does not answer, and SlurmRefused where it says no.
    """
    try:
        done = subprocess.run(
            command,
            input=stdin,
            env=environment,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise SlurmUnreachable(f"{command[0]}: no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise SlurmUnreachable(
            f"{command[0]} cannot be run: {error.strerror or error};"
            " are Slurm's commands installed here?"
        ) from error
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.strip()
    is_no = done.returncode > 0 and message and not TRY_AGAIN.search(message)
    words = message or f"exit code {done.returncode}, no message"
    raise (SlurmRefused if is_no else SlurmUnreachable)(f"{' '.join(command[:named_by])}: {words}")


def run_slurm(*command: str, timeout_s: float = TIMEOUT_S) -> str:
    """Return what a command prints that changes nothing: a busy controller is asked again."""
    for turn in range(1, TRIES + 1):
        try:
            environment = {**os.environ, **ENVIRONMENT}
            return call_slurm(*command, environment=environment, timeout_s=timeout_s, named_by=2)
        except SlurmUnreachable as error:
            if turn == TRIES or not BUSY.search(str(error)):
                raise
            time.sleep(PAUSE_S)
    raise AssertionError
