"""`allocator queue`: the commands of the durable queue of a cluster.

This module declares the options. What each command does is in verbs.py, which is imported when a
command runs.
"""

from __future__ import annotations

import argparse
from typing import Any

from allocator.cli.parsing import (
    DAY_S,
    QUEUE,
    Argument,
    Command,
    CommandGroup,
    duration,
    formats,
    number,
    option,
    pair,
    parse_future,
    parse_integer,
    repeated,
)
from allocator.cli.queue.job_options import CHANGEABLE, NAMES, PROGRESS_OPTIONS, job_options

EXAMPLES = """
allocator queue init cluster.db --from data/snapshots/demo      a queue with the pools, rates and \
jobs of a snapshot
allocator queue submit cluster.db --job-id bert-1 --model bert --total-work 9e6 --max-gpus 8 -- \
python train.py
allocator queue list cluster.db --state active                  what waits and runs
"""
NODE_EXAMPLES = """
allocator queue node add cluster.db n1 n2 --pool a100 --gpus 8 --label rack=r1
allocator queue node list cluster.db
"""
ABOUT = """\
QUEUE is a path (an SQLite file, nothing to set up) or a URL (postgresql://USER@HOST/DATABASE, for
several machines). What a command confirmed with exit code 0 is on disk. Every verb can be repeated:
it does nothing twice."""
TABLE = ("table", "json")
CSV = (*TABLE, "csv")


def _verb(
    name: str,
    words: str,
    examples: str,
    *arguments: Argument,
    output: tuple[str, ...] = TABLE,
    function: str = "",
    given: tuple[Any, ...] = (),
    takes_command: bool = False,
) -> Command:
    """Return a command that calls a function of verbs.py, by default its namesake.

    `given` is what the function gets besides the arguments and the open queue.
    """

    def call(args: argparse.Namespace) -> int:
        from allocator.cli.queue import verbs  # which imports the database
        from allocator.queue.queue import Queue

        if name == "init":
            verbs.init(args)
            return 0
        with Queue(args.queue) as queue:
            getattr(verbs, function or name.replace("-", "_"))(args, queue, *given)
        return 0

    about = words[0].upper() + words[1:] + "."
    first = (QUEUE, formats(*output)) if output else (QUEUE,)
    return Command(name, words, about, examples, (*first, *arguments), call, takes_command)


JOBS = option("jobs", "JOB", None, nargs="+")
NODES = option("nodes", "NODE", None, nargs="+")
STATES = "active, queued, running, paused, held, done, cancelled, failed; may be repeated"
OF_NODES = (
    option("--cpus", "N", "its CPUs (default: no limit)", number()),
    option("--memory-gb", "GB", "its memory (default: no limit)", number()),
    repeated(
        "--label",
        "LEVEL=LABEL",
        "where it stands, such as rack=r1; may be given several times; empty: nowhere known",
        type=pair("LEVEL=LABEL"),
        dest="labels",
    ),
)
TENANT = CommandGroup(
    "tenant",
    "the tree of tenants and their quotas: list, set",
    "The tree of tenants, and their quotas.",
    "allocator queue tenant list cluster.db\n"
    "allocator queue tenant set cluster.db vision --max-gpus 16",
    (
        _verb(
            "list",
            "the tenants and their quotas by GPU type and pool",
            "allocator queue tenant list cluster.db",
            function="list_tenants",
        ),
        _verb(
            "set",
            "add a tenant or a quota of it, or change them",
            "allocator queue tenant set cluster.db research --max-gpus 24\n"
            "allocator queue tenant set cluster.db vision --parent research --max-gpus 16\n"
            "allocator queue tenant set cluster.db vision --type A100 --guaranteed-gpus 8"
            " --lend-gpus 4",
            option("tenant", "TENANT", None),
            option("--parent", "TENANT", 'the tenant above it; "" removes it'),
            option("--weight", "W", "share in fairness objectives"),
            option("--budget-per-hour", "USD", "of all GPUs of its jobs and of those below it"),
            option(
                "--gpu-hours-per-month",
                "H",
                'most GPU-hours of its tree in a calendar month (UTC); "" for no limit',
            ),
            option("--max-jobs", "N", 'most of its own jobs that run at once; "" for no limit'),
            option("--type", "TYPE", "the GPUs of this type only", dest="gpu_type"),
            option("--pool", "POOL", "the GPUs of this pool only"),
            option("--max-gpus", "N", 'most GPUs at once; "" for no limit'),
            option("--guaranteed-gpus", "N", "GPUs it gets when it can use them"),
            option(
                "--lend-gpus",
                "N",
                'GPUs of --guaranteed-gpus that others may hold while it can not; "" for all',
            ),
            function="set_tenant",
        ),
    ),
)
NODE = CommandGroup(
    "node",
    "the nodes of the pools: list, add, set, up, drain, down, remove",
    "The nodes of the pools. A pool with nodes has the GPUs of those that are up.",
    NODE_EXAMPLES,
    (
        _verb(
            "list",
            "the nodes, what they have, and the jobs on them",
            "allocator queue node list cluster.db\n"
            "allocator queue node list cluster.db --pool a100",
            option("--pool", "POOL", "only nodes of this pool"),
            output=CSV,
            function="list_nodes",
        ),
        _verb(
            "add",
            "add nodes that are alike",
            "allocator queue node add cluster.db n1 n2 --pool a100 --gpus 8 --label rack=r1",
            NODES,
            option("--pool", "POOL", "the pool of its GPUs", required=True),
            option("--gpus", "N", None, parse_integer(0), required=True),
            *OF_NODES,
            function="add_nodes",
        ),
        _verb(
            "set",
            "change GPUs, CPUs, memory, or labels of nodes",
            "allocator queue node set cluster.db n1 --label rack=r2",
            NODES,
            option("--gpus", "N", None, parse_integer(0)),
            *OF_NODES,
            function="set_nodes",
        ),
        _verb(
            "up",
            "give jobs GPUs of these nodes again",
            "allocator queue node up cluster.db n1 n2",
            NODES,
            function="set_node_state",
            given=("up",),
        ),
        _verb(
            "drain",
            "move jobs away from these nodes, and give none of their GPUs to new ones",
            "allocator queue node drain cluster.db n1 n2\n"
            "allocator queue node drain cluster.db n1 --at 6h --until 10h",
            NODES,
            option("--at", "TIME", "when they leave (default: now)", parse_future),
            option("--until", "TIME", "when they are back (default: by `up`)", parse_future),
            function="drain_nodes",
        ),
        _verb(
            "down",
            "these machines are gone: their jobs are lost and start again elsewhere",
            "allocator queue node down cluster.db n1 n2",
            NODES,
            function="set_node_state",
            given=("down",),
        ),
        _verb(
            "remove",
            "forget nodes on which no job has GPUs",
            "allocator queue node remove cluster.db n1",
            NODES,
            function="remove_nodes",
        ),
    ),
)
TOKEN = CommandGroup(
    "token",
    "who may use the HTTP service: add, list, revoke",
    "The tokens of the HTTP service. The queue keeps their hashes only.",
    "allocator queue token add cluster.db ann --role operator\n"
    "allocator queue token list cluster.db",
    (
        _verb(
            "add",
            "make a token and print it, once",
            "allocator queue token add cluster.db ann --role operator\n"
            "allocator queue token add cluster.db vision-ci --role member --tenant vision"
            " --expires-days 90",
            option("name", "NAME", "who has it, for the list and the log"),
            option(
                "--role",
                "ROLE",
                "viewer: reads; member: reads and changes the jobs of a tenant; operator:"
                " everything",
                required=True,
            ),
            option("--tenant", "NAME", "the tenant of a member", default=""),
            option(
                "--expires-days",
                "TIME",
                "when it ends, in days or as 12h (default: never)",
                duration(1e-6, unit_s=DAY_S),
            ),
            function="add_token",
        ),
        _verb(
            "list", "all tokens", "allocator queue token list cluster.db", function="list_tokens"
        ),
        _verb(
            "revoke",
            "end a token at once",
            "allocator queue token revoke cluster.db 3",
            option("id", "ID", "its number in the list", parse_integer(1)),
            function="revoke_token",
        ),
    ),
)
call = CommandGroup(
    "queue",
    "the durable queue: submit, list, hold, cancel ...",
    ABOUT,
    EXAMPLES,
    (
        _verb(
            "init",
            "make a queue",
            "allocator queue init cluster.db --from data/snapshots/demo\n"
            "allocator queue init postgresql://me@db/cluster --from my-cluster",
            option(
                "--from",
                "SNAPSHOT",
                "fill it with the pools, tenants, rates, settings and jobs of a snapshot folder;"
                " what runs there holds its GPUs here. Times move so that its now is now, unless"
                " they are unix seconds. Jobs of an observed cluster are left to it",
                dest="source",
            ),
            output=(),
        ),
        _verb(
            "submit",
            "submit one job; what follows -- is its command",
            "allocator queue submit cluster.db --job-id bert-1 --model bert --total-work 9e6"
            " --max-gpus 8 -- python train.py\nallocator queue submit cluster.db --key run-17"
            " --model bert --total-work 9e6 --max-gpus 8",
            *job_options(*NAMES),
            option(
                "--key",
                "KEY",
                "submission key: the same again is the same job, not a second one (default: the"
                " job_id)",
            ),
            repeated(
                "--env",
                "NAME=VALUE",
                "environment of the command; may be given several times",
                type=pair("NAME=VALUE"),
            ),
            option("--workdir", "DIR", "where the command runs"),
            *PROGRESS_OPTIONS,
            takes_command=True,
        ),
        _verb(
            "list",
            "jobs in the order of submission",
            "allocator queue list cluster.db --state active\n"
            "allocator queue list cluster.db --format json",
            repeated("--state", "STATE", STATES),
            option("--tenant", "NAME", None),
            option("--model", "NAME", None),
            option("--limit", "N", "the latest N", parse_integer(1)),
            output=CSV,
            function="list_",
        ),
        _verb(
            "show",
            "one job with everything it was given and all it ever held",
            "allocator queue show cluster.db bert-1",
            option("job", "JOB", None),
        ),
        _verb(
            "change",
            "change weight, sizes or deadline of jobs",
            "allocator queue change cluster.db bert-1 --weight 2\n"
            "allocator queue change cluster.db bert-1 --min-gpus 2 --max-gpus 4",
            JOBS,
            *job_options(*CHANGEABLE),
        ),
        *(
            _verb(
                verb,
                words,
                f"allocator queue {verb} cluster.db bert-1 bert-2",
                JOBS,
                function="change_state",
                given=(verb,),
            )
            for verb, words in (
                (
                    "hold",
                    "give jobs nothing until release; running ones are stopped with a checkpoint",
                ),
                ("release", "undo hold"),
                ("cancel", "end jobs; running ones are stopped first"),
                ("retry", "bring parked or cancelled jobs back; end the delay after failures"),
            )
        ),
        _verb(
            "import-csv",
            "submit the jobs of a CSV file, all or none",
            "allocator queue import-csv cluster.db workload.csv\n"
            "generate-jobs | allocator queue import-csv cluster.db -",
            option(
                "file",
                "FILE",
                "columns of workload.csv or jobs.csv, and key, command, environment, workdir; - is"
                " standard input",
            ),
        ),
        _verb(
            "export-csv",
            "every job as CSV, for import-csv and for other programs",
            "allocator queue export-csv cluster.db > jobs.csv",
            option("file", "FILE", "default: standard output", nargs="?", default="-"),
            repeated("--state", "STATE", "only these, as in list"),
            output=(),
        ),
        _verb(
            "costs",
            "GPU-hours and dollars by month, day, tenant, user, model or job",
            "allocator queue costs cluster.db\n"
            "allocator queue costs cluster.db --by tenant,model --months 3 --format csv",
            option(
                "--by",
                "KEYS",
                "what to sum by: month, day, tenant, user, model, job_id (default: month,tenant)",
                lambda text: text.split(","),
                ["month", "tenant"],
            ),
            option(
                "--months",
                "N",
                "number of months, the present one included (default: 1)",
                parse_integer(1, 1200),
                1,
            ),
            option("--tenant", "TENANT", "only its own jobs"),
            output=CSV,
        ),
        _verb(
            "pools",
            "the pools and who holds how much of them; change their GPUs",
            "allocator queue pools cluster.db\nallocator queue pools cluster.db --set a100=24",
            repeated(
                "--set",
                "POOL=GPUS",
                "GPUs of a pool that may be used from now on; may be given several times",
                type=pair("POOL=GPUS", int),
                dest="changes",
            ),
            output=CSV,
        ),
        _verb(
            "config",
            "the settings of config.toml; change them",
            "allocator queue config cluster.db --set interval_s=60 --set budget_per_hour=120",
            repeated(
                "--set",
                "KEY=VALUE",
                "an empty value is the default; may be given several times",
                type=pair("KEY=VALUE"),
                dest="changes",
            ),
        ),
        _verb(
            "purge",
            "forget jobs that are done or cancelled, and all they held",
            "allocator queue purge cluster.db --older-than 90",
            option(
                "--older-than",
                "TIME",
                "since they ended, in days or as 12h",
                duration(unit_s=DAY_S),
                required=True,
            ),
        ),
        _verb(
            "cluster",
            "replace pools, tenants, rates, sharing and settings by those of a snapshot",
            "allocator queue cluster cluster.db --from my-cluster",
            option("--from", "SNAPSHOT", "its jobs do not count", required=True, dest="source"),
            output=(),
            function="replace_cluster",
        ),
        _verb(
            "adopt",
            "make a queue that was restored or made anew and the state of its executor agree",
            "allocator queue adopt cluster.db\n"
            "allocator queue adopt cluster.db --executor local --state /var/lib/allocator",
            option(
                "--executor",
                "NAME",
                "whose state it is (default: the executor that the queue was run by)",
            ),
            option(
                "--state",
                "DIR",
                "folder of the state (default: the one that the queue was run with, else next to an"
                " SQLite queue)",
            ),
        ),
        _verb(
            "export",
            "the queue of now as a snapshot folder, for solve, explain and whatif",
            "allocator queue export cluster.db now && allocator solve now",
            option("folder", "SNAPSHOT_DIR", "new, or an earlier export, which it replaces"),
            output=(),
        ),
        TENANT,
        NODE,
        TOKEN,
    ),
)
