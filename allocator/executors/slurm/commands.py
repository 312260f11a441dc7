"""Ask Slurm by its commands: jobs, nodes, submission and cancellation.

Only formats that are the same in all versions from 22.05 on are used. No answer is never an empty
list: a command that fails, takes too long or prints something else raises `SlurmUnreachable`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from allocator.clusters.adapter import ClusterUnreachable
from allocator.clusters.slurm.values import count_gpus, expand_names
from allocator.executors.supervision.supervisor import HIDDEN

TIMEOUT_S = 20.0
# what a job that will run, runs or is ending is in; every other state but these is an end
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"))
LIVE = frozenset(
    (
        "RUNNING",
        "COMPLETING",
        "CONFIGURING",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
    )
)
# states of nodes that take new jobs
AVAILABLE = frozenset(("idle", "mixed", "allocated", "completing", "planned"))
# states on which nothing runs
DOWN = frozenset(("down", "error", "powered_down", "powering_down"))
# flags of a node that takes no new jobs: maintenance, reboot asked for or issued, powering down
LEAVING = "$@^%!"
_FLAGS = "*+-~#!%$@^"
_FIELDS = ("JOBID", "STATE", "NODELIST", "COMMENT", "REASON", "NAME")
_JOB_FORMAT = "%A|%T|%N|%k|%r|%j"
_USERS_FORMAT = "".join(
    f"{field}:|,"
    for field in (
        "JobArrayID",
        "State",
        "RestartCnt",
        "SubmitTime",
        "PriorityLong",
        "UserID",
        "NodeList",
        "Reason",
        "admin_comment",
    )
)
_NODE_FORMAT = "NodeList:|,Partition:|,StateLong:|,Gres:|,GresUsed:|"
_PREFIXES = ("ALLOCATOR_", "SLURM", "SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_")
# answers of sbatch after which the same command may succeed later
_TRY_AGAIN = re.compile(
    "Unable to contact|[Cc]onnect|timed out|temporarily|Zero Bytes|Transport endpoint|"
    "[Mm]essage|[Cc]ommunication|slurmctld"
)


class SlurmUnreachable(OSError):
    """Slurm does not answer now. What was asked may have been done, or may not."""


class SlurmRefused(SlurmUnreachable):
    """Slurm understood the command and refuses it."""


@dataclass(frozen=True)
class BatchJob:
    """A batch job, as Slurm lists it; only the name identifies it, as ids are given out again."""

    job_id: str
    state: str
    nodes: tuple[str, ...]
    comment: str
    reason: str
    name: str

    @property
    def is_waiting(self) -> bool:
        """Return whether it waits to be started."""
        return self.state in WAITING

    @property
    def is_live(self) -> bool:
        """Return whether it holds its nodes."""
        return self.state in LIVE


@dataclass(frozen=True)
class Node:
    """A node of a partition: its GPUs, and those that jobs hold."""

    name: str
    partition: str
    state: str
    gpus: int
    used: int

    @property
    def is_available(self) -> bool:
        """Return whether it takes new jobs: "*" does not answer, "$" is under maintenance ..."""
        return self.state.rstrip("+-~#") in AVAILABLE

    @property
    def service(self) -> str:
        """Return "up", "drain" or "down"; one that does not answer stays up until Slurm gives up.

        Jobs need not leave it before, as it may answer again at once.
        """
        word = self.state.rstrip(_FLAGS)
        if word in DOWN:
            return "down"
        is_up = word in AVAILABLE and not set(LEAVING) & set(self.state)
        return "up" if is_up or word == "unknown" else "drain"


def list_batch_jobs() -> list[BatchJob]:
    """Return all jobs of this user that slurmctld remembers, ended ones too. Raises OSError."""
    lines = run(
        "squeue",
        "--all",
        "--states=all",
        f"--user={os.getuid()}",
        f"--format={_JOB_FORMAT}",
    ).splitlines()
    if not lines or tuple(lines[0].split("|")) != _FIELDS:
        raise SlurmUnreachable(f"squeue printed {lines[:1]} instead of its header")
    return [_parse_job(line) for line in lines[1:]]


def _parse_job(line: str) -> BatchJob:
    fields = line.split("|", len(_FIELDS) - 1)
    if len(fields) != len(_FIELDS) or not fields[0].isdecimal() or not fields[1].isupper():
        raise SlurmUnreachable(f'squeue printed "{line[:100]}"')
    job_id, state, nodes, comment, reason, name = fields
    try:
        return BatchJob(job_id, state, tuple(expand_names(nodes)), comment, reason, name)
    except ClusterUnreachable as error:
        raise SlurmUnreachable(str(error)) from error


@dataclass(frozen=True)
class UsersJob:
    """A job that a user submitted to Slurm; a task of an array is a job.

    Parameters
    ----------
    ident : str
        How commands address it, "7" or "7_3"; ids are given out again.
    restarts : int
        How often it was requeued.
    submitted_s : int
        When it was submitted, or requeued the last time, in unix seconds.
    priority : int
        0: it is held.
    user_id : int
        Whose it is.
    mark : str
        Its admin comment, which users cannot write.
    """

    ident: str
    state: str
    restarts: int
    submitted_s: int
    priority: int
    user_id: int
    nodes: tuple[str, ...]
    reason: str
    mark: str

    @property
    def is_waiting(self) -> bool:
        """Return whether it waits to be started."""
        return self.state in WAITING

    @property
    def is_over(self) -> bool:
        """Return whether it has ended for good."""
        return self.state not in WAITING | LIVE


def list_users_jobs(mark: str) -> list[UsersJob]:
    """Return the jobs whose admin comment begins with this word, ended ones too.

    Raises OSError.
    """
    printed = run(
        "squeue",
        "--all",
        "--array",
        "--states=all",
        f"--Format={_USERS_FORMAT}",
        SLURM_TIME_FORMAT="%s",
        SLURM_BITSTR_LEN="0",
    )
    header, *lines = printed.splitlines() or [""]
    if header.count("|") != _USERS_FORMAT.count("|"):
        raise SlurmUnreachable(f'squeue printed "{header[:100]}" instead of its header')
    found = (_parse_users_job(line) for line in lines)
    return [job for job in found if job.mark.partition(" ")[0] == mark]


def _parse_users_job(line: str) -> UsersJob:
    try:
        ident, state, restarts, submitted, priority, user, nodes, reason, mark, _ = line.split("|")
        return UsersJob(
            ident,
            state,
            int(restarts),
            int(submitted),
            int(priority),
            int(user),
            tuple(expand_names(nodes)),
            reason,
            mark,
        )
    except (ValueError, ClusterUnreachable) as error:
        raise SlurmUnreachable(f'squeue printed "{line[:100]}"') from error


def read_allocated_gpus(ident: str) -> int:
    """Return the GPUs that a running job really has, whatever it asked for. Raises OSError."""
    printed = run("scontrol", "show", "job", "-d", "-o", ident)
    return sum(count_gpus(text).total() for text in re.findall(r" JOB_GRES=(\S+)", printed))


def read_output_path(ident: str) -> str:
    """Return the name of the output file of a job, which its user chose; "" if it has none.

    Slurm has replaced all patterns in it but %N, the name of the first node. Raises OSError.
    """
    printed = run("scontrol", "show", "job", ident)
    return next(iter(re.findall(r"^ *StdOut=(.*)$", printed, re.MULTILINE)[-1:]), "")


def read_node_address(node: str) -> str:
    """Return the address of a node. Raises OSError."""
    words = run("sinfo", "--noheader", "--nodes", node, "--Format=NodeAddr:256").split()
    return words[0] if words else node


def control(verb: str, idents: Sequence[str], *arguments: str) -> None:
    """Call scontrol once for jobs, such as `hold`. Raises SlurmRefused and SlurmUnreachable."""
    if idents:
        run("scontrol", verb, *arguments, ",".join(idents))


def list_nodes() -> list[Node]:
    """Return every node, once for each of its partitions. Raises OSError."""
    printed = run("sinfo", "--noheader", "--all", "--Node", f"--Format={_NODE_FORMAT}")
    return [_parse_node(line) for line in printed.splitlines()]


def _parse_node(line: str) -> Node:
    fields = [field.strip() for field in line.split("|")]
    if len(fields) != 6 or not fields[2].rstrip(_FLAGS).replace("_", "").isalpha():
        raise SlurmUnreachable(f'sinfo printed "{line[:100]}"')
    name, partition, state, gpus, used, _ = fields
    return Node(
        name, partition.rstrip("*"), state, count_gpus(gpus).total(), count_gpus(used).total()
    )


def submit(options: Sequence[str], script: str, **variables: str) -> str:
    """Submit a batch job, and return its id. Raises SlurmRefused and SlurmUnreachable.

    `variables` are added to its environment.
    """
    printed = run("sbatch", "--parsable", *options, stdin=script, **variables)
    job_id = printed.strip().partition(";")[0]
    if not job_id.isdecimal():
        raise SlurmUnreachable(f'sbatch printed "{printed[:100]}"')
    return job_id


def cancel(job_ids: Iterable[str]) -> None:
    """Cancel batch jobs with one command. Raises SlurmUnreachable.

    A running one gets SIGTERM, and SIGKILL after KillWait. Jobs that have ended are no error.
    """
    with suppress(SlurmRefused):  # one of them has ended meanwhile; the next look tells
        run("scancel", *job_ids)


def run(*command: str, stdin: str = "", **more: str) -> str:
    """Return what a command of Slurm prints; `more` are variables of its environment.

    Raises SlurmUnreachable where it does not answer, and SlurmRefused where it says no.
    """
    try:
        done = subprocess.run(
            command,
            input=stdin,
            env=_build_environment() | more,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise SlurmUnreachable(f"{command[0]}: no answer in {TIMEOUT_S:g} s") from error
    if done.returncode == 0:
        return done.stdout
    words = f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}"
    if done.returncode < 0 or not done.stderr.strip() or _TRY_AGAIN.search(done.stderr):
        raise SlurmUnreachable(words)
    raise SlurmRefused(words)


def _build_environment() -> dict[str, str]:
    """Return the environment of this process without what changes the meaning of a command."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not (name in HIDDEN or name.startswith(_PREFIXES))
    } | {"LC_ALL": "C"}
