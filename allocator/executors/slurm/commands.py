"""Ask Slurm by its commands: jobs, nodes, submission and cancellation.

Only formats that are the same in all versions from 22.05 on are used. No answer is never an empty
list: a command that fails, takes too long or prints something else raises `SlurmUnreachable`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from allocator.clusters.slurm.commands import SlurmRefused, SlurmUnreachable, call_slurm
from allocator.clusters.slurm.values import count_gpus, expand_names, parse_records
from allocator.executors.supervision.batch import BatchJob
from allocator.executors.supervision.supervisor import HIDDEN
from allocator.objects import Json

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
_USERS_FIELDS = (
    "JobArrayID",
    "State",
    "NodeList",
    "Reason",
    "RestartCnt",
    "SubmitTime",
    "PriorityLong",
    "UserID",
    "admin_comment",
)
_COUNTS = ("restarts", "submitted_s", "priority", "user_id")  # the four after the reason
_NODE_FORMAT = "NodeList:|,Partition:|,StateLong:|,Gres:|,GresUsed:|"
_PREFIXES = ("ALLOCATOR_", "SLURM", "SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_")


@dataclass(frozen=True)
class UsersJob(BatchJob):
    """A job that a user submitted to Slurm; a task of an array is a job.

    Its `job_id` is how commands address it, "7" or "7_3"; ids are given out again.

    Parameters
    ----------
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

    restarts: int = 0
    submitted_s: int = 0
    priority: int = 0
    user_id: int = 0
    mark: str = ""


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
    user = f"--user={os.getuid()}"
    lines = run("squeue", "--all", "--states=all", user, "--format=%A|%T|%N|%k|%r|%j").splitlines()
    if not lines or tuple(lines[0].split("|")) != _FIELDS:
        raise SlurmUnreachable(f"squeue printed {lines[:1]} instead of its header")
    jobs = []
    for line in lines[1:]:
        fields = line.split("|", len(_FIELDS) - 1)
        if len(fields) != len(_FIELDS) or not fields[0].isdecimal() or not fields[1].isupper():
            raise SlurmUnreachable(f'squeue printed "{line[:100]}"')
        job_id, state, nodes, comment, reason, name = fields
        jobs.append(BatchJob(job_id, *_read_state(state, nodes), reason, name, comment))
    return jobs


def _read_state(state: str, nodes: str) -> tuple[str, bool, bool, tuple[str, ...]]:
    """Return a state, whether a job waits in it or is live, and the nodes of a job."""
    return state, state in WAITING, state in LIVE, tuple(expand_names(nodes))


def list_users_jobs(mark: str) -> list[UsersJob]:
    """Return the jobs whose admin comment begins with this word, ended ones too.

    Raises OSError.
    """
    printed = run(
        "squeue",
        "--all",
        "--array",
        "--states=all",
        f"--Format={''.join(f'{field}:|,' for field in _USERS_FIELDS)}",
        SLURM_TIME_FORMAT="%s",
        SLURM_BITSTR_LEN="0",
    )
    header, *lines = printed.splitlines() or [""]
    if header.count("|") != len(_USERS_FIELDS):
        raise SlurmUnreachable(f'squeue printed "{header[:100]}" instead of its header')
    jobs = []
    for line in lines:
        try:
            ident, state, nodes, reason, *numbers, words, _ = line.split("|")
            counts: Json = dict(zip(_COUNTS, map(int, numbers), strict=True))
        except ValueError as error:
            raise SlurmUnreachable(f'squeue printed "{line[:100]}"') from error
        if words.partition(" ")[0] == mark:
            jobs.append(UsersJob(ident, *_read_state(state, nodes), reason, mark=words, **counts))
    return jobs


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


def list_nodes() -> list[Node]:
    """Return every node, once for each of its partitions. Raises OSError."""
    printed = run("sinfo", "--noheader", "--all", "--Node", f"--Format={_NODE_FORMAT}")
    nodes = []
    for line in printed.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 6 or not fields[2].rstrip(_FLAGS).replace("_", "").isalpha():
            raise SlurmUnreachable(f'sinfo printed "{line[:100]}"')
        gpus, used = (count_gpus(text).total() for text in fields[3:5])
        nodes.append(Node(fields[0], fields[1].rstrip("*"), fields[2], gpus, used))
    return nodes


def list_reservations() -> list[dict[str, str]]:
    """Return the records of all reservations, with times in unix seconds. Raises OSError."""
    return parse_records(run("scontrol", "show", "reservation", "-o", SLURM_TIME_FORMAT="%s"))


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

    It has the environment of this process without what changes the meaning of a command. Raises
    SlurmUnreachable where it does not answer, and SlurmRefused where it says no.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not (name in HIDDEN or name.startswith(_PREFIXES))
    }
    environment |= {"LC_ALL": "C", **more}
    return call_slurm(*command, environment=environment, timeout_s=TIMEOUT_S, stdin=stdin)
