"""`allocator queue`: the commands of the durable queue of a cluster.

This module declares the options. What each command does is in verbs.py, which is imported when a
command runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from allocator.cli.parsing import (
    DAY_S,
    Parser,
    add_format,
    add_queue,
    duration,
    number,
    parse_integer,
    show_help_alone,
)
from allocator.cli.queue.job_options import CHANGEABLE, JOB_OPTIONS, PROGRESS_OPTIONS

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


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "queue",
        examples=EXAMPLES,
        help="the durable queue: submit, list, hold, cancel ...",
        description=ABOUT,
    )
    verbs = _add_verbs(parser)
    _init(verbs)
    _submit(verbs)
    _list(verbs)
    _show(verbs)
    _change(verbs)
    for verb, words in (
        ("hold", "give jobs nothing until release; running ones are stopped with a checkpoint"),
        ("release", "undo hold"),
        ("cancel", "end jobs; running ones are stopped first"),
        ("retry", "bring parked or cancelled jobs back; end the pause after failures"),
    ):
        one = _verb(verbs, verb, words, f"allocator queue {verb} cluster.db bert-1 bert-2")
        one.add_argument("jobs", nargs="+", metavar="JOB")
        one.set_defaults(verb=verb, call=_load_call("change_state"))
    _csv(verbs)
    _cluster(verbs)
    _tenants(verbs)
    _nodes(verbs)
    _tokens(verbs)


def _add_verbs(parser: Parser) -> Any:
    """Return the subcommands of a command that does nothing without one."""
    show_help_alone(parser)
    return parser.add_subparsers(title="verbs", metavar="VERB", parser_class=Parser)


def _group(verbs: Any, name: str, words: str, about: str, examples: str) -> Any:
    """Add a command with verbs of its own, and return these."""
    return _add_verbs(verbs.add_parser(name, examples=examples, help=words, description=about))


def _verb(
    verbs: Any,
    name: str,
    words: str,
    examples: str,
    formats: Sequence[str] = ("table", "json"),
    function: str = "",
) -> Any:
    """Add a command that calls a function of verbs.py, by default its namesake.

    Returns its parser.
    """
    parser = verbs.add_parser(
        name, examples=examples, help=words, description=words[0].upper() + words[1:] + "."
    )
    add_queue(parser)
    if formats:
        add_format(parser, *formats)
    parser.set_defaults(call=_load_call(function or name.replace("-", "_")))
    return parser


def _load_call(name: str) -> Callable[[argparse.Namespace], int]:
    """Return a function that calls a function of verbs.py, which imports the database."""

    def call(args: argparse.Namespace) -> int:
        from allocator.cli.queue import verbs

        return int(getattr(verbs, name)(args))

    return call


def _init(verbs: Any) -> None:
    parser = _verb(
        verbs,
        "init",
        "make a queue",
        "allocator queue init cluster.db --from data/snapshots/demo\n"
        "allocator queue init postgresql://me@db/cluster --from my-cluster",
        (),
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SNAPSHOT",
        help=(
            "fill it with the pools, tenants, rates, settings and jobs of a snapshot folder; what"
            " runs there holds its GPUs here. Times move so that its now is now, unless they are"
            " unix seconds"
        ),
    )


def _submit(verbs: Any) -> None:
    parser = _verb(
        verbs,
        "submit",
        "submit one job; what follows -- is its command",
        "allocator queue submit cluster.db --job-id bert-1 --model bert --total-work 9e6 --max-gpus"
        " 8 -- python train.py\nallocator queue submit cluster.db --key run-17 --model bert"
        " --total-work 9e6 --max-gpus 8",
    )
    parser.takes_command = True
    for name, metavar, words in JOB_OPTIONS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=words)
    parser.add_argument(
        "--key",
        metavar="KEY",
        help=(
            "submission key: the same again is the same job, not a second one (default: the job_id)"
        ),
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="environment of the command; may be given several times",
    )
    parser.add_argument("--workdir", metavar="DIR", help="where the command runs")
    for option, _, metavar, words in PROGRESS_OPTIONS:
        parser.add_argument(f"--{option.replace('_', '-')}", metavar=metavar, help=words)


def _list(verbs: Any) -> None:
    parser = _verb(
        verbs,
        "list",
        "jobs in the order of submission",
        "allocator queue list cluster.db --state active\n"
        "allocator queue list cluster.db --format json",
        ("table", "json", "csv"),
        function="list_",
    )
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="active, queued, running, paused, held, done, cancelled, failed; may be repeated",
    )
    parser.add_argument("--tenant", metavar="NAME")
    parser.add_argument("--model", metavar="NAME")
    parser.add_argument("--limit", type=parse_integer(1), metavar="N", help="the latest N")


def _show(verbs: Any) -> None:
    parser = _verb(
        verbs,
        "show",
        "one job with everything it was given and all it ever held",
        "allocator queue show cluster.db bert-1",
    )
    parser.add_argument("job", metavar="JOB")


def _change(verbs: Any) -> None:
    parser = _verb(
        verbs,
        "change",
        "change weight, sizes or deadline of jobs",
        "allocator queue change cluster.db bert-1 --weight 2\n"
        "allocator queue change cluster.db bert-1 --min-gpus 2 --max-gpus 4",
    )
    parser.add_argument("jobs", nargs="+", metavar="JOB")
    for name, metavar, words in JOB_OPTIONS:
        if name in CHANGEABLE:
            parser.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=words)


def _csv(verbs: Any) -> None:
    parser = _verb(
        verbs,
        "import-csv",
        "submit the jobs of a CSV file, all or none",
        "allocator queue import-csv cluster.db workload.csv\n"
        "generate-jobs | allocator queue import-csv cluster.db -",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help=(
            "columns of workload.csv or jobs.csv, and key, command, "
            "environment, workdir; - is standard input"
        ),
    )
    parser = _verb(
        verbs,
        "export-csv",
        "every job as CSV, for import-csv and for other programs",
        "allocator queue export-csv cluster.db > jobs.csv",
        (),
    )
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="default: standard output"
    )
    parser.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only these, as in list"
    )


def _cluster(verbs: Any) -> None:
    parser = _verb(
        verbs,
        "pools",
        "the pools and who holds how much of them; change their GPUs",
        "allocator queue pools cluster.db\nallocator queue pools cluster.db --set a100=24",
        ("table", "json", "csv"),
    )
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="POOL=GPUS",
        help="GPUs of a pool that may be used from now on; may be given several times",
    )
    parser = _verb(
        verbs,
        "config",
        "the settings of config.toml; change them",
        "allocator queue config cluster.db --set interval_s=60 --set budget_per_hour=120",
    )
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an empty value is the default; may be given several times",
    )
    parser = _verb(
        verbs,
        "purge",
        "forget jobs that are done or cancelled, and all they held",
        "allocator queue purge cluster.db --older-than 90",
    )
    parser.add_argument(
        "--older-than",
        type=duration(unit_s=DAY_S),
        required=True,
        metavar="TIME",
        help="since they ended, in days or as 12h",
    )
    parser = _verb(
        verbs,
        "cluster",
        "replace pools, tenants, rates, sharing and settings by those of a snapshot",
        "allocator queue cluster cluster.db --from my-cluster",
        (),
        function="replace_cluster",
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="SNAPSHOT", help="its jobs do not count"
    )
    parser = _verb(
        verbs,
        "adopt",
        "make a queue that was restored or made anew and the state of its executor agree",
        "allocator queue adopt cluster.db\n"
        "allocator queue adopt cluster.db --executor local --state /var/lib/allocator",
        ("table", "json"),
    )
    parser.add_argument(
        "--executor",
        metavar="NAME",
        help="whose state it is (default: the executor that the queue was run by)",
    )
    parser.add_argument(
        "--state",
        metavar="DIR",
        help=(
            "folder of the state (default: the one that the queue was run "
            "with, else next to an SQLite queue)"
        ),
    )
    parser = _verb(
        verbs,
        "export",
        "the queue of now as a snapshot folder, for solve, explain and whatif",
        "allocator queue export cluster.db now && allocator solve now",
        (),
    )
    parser.add_argument(
        "folder", metavar="SNAPSHOT_DIR", help="new, or an earlier export, which it replaces"
    )


def _tenants(verbs: Any) -> None:
    tenants = _group(
        verbs,
        "tenant",
        "the tree of tenants and their quotas: list, set",
        "The tree of tenants, and their quotas.",
        "allocator queue tenant list cluster.db\n"
        "allocator queue tenant set cluster.db vision --max-gpus 16",
    )
    _verb(
        tenants,
        "list",
        "the tenants and their quotas by GPU type and pool",
        "allocator queue tenant list cluster.db",
        function="list_tenants",
    )
    one = _verb(
        tenants,
        "set",
        "add a tenant or a quota of it, or change them",
        "allocator queue tenant set cluster.db research --max-gpus 24\n"
        "allocator queue tenant set cluster.db vision --parent research --max-gpus 16\n"
        "allocator queue tenant set cluster.db vision --type A100 --guaranteed-gpus 8"
        " --lend-gpus 4",
        function="set_tenant",
    )
    one.add_argument("tenant", metavar="TENANT")
    one.add_argument("--parent", metavar="TENANT", help='the tenant above it; "" removes it')
    one.add_argument("--weight", metavar="W", help="share in fairness objectives")
    one.add_argument(
        "--budget-per-hour", metavar="USD", help="of all GPUs of its jobs and of those below it"
    )
    one.add_argument("--type", dest="gpu_type", metavar="TYPE", help="the GPUs of this type only")
    one.add_argument("--pool", metavar="POOL", help="the GPUs of this pool only")
    one.add_argument("--max-gpus", metavar="N", help='most GPUs at once; "" for no limit')
    one.add_argument("--guaranteed-gpus", metavar="N", help="GPUs it gets when it can use them")
    one.add_argument(
        "--lend-gpus",
        metavar="N",
        help='GPUs of --guaranteed-gpus that others may hold while it can not; "" for all',
    )


def _nodes(verbs: Any) -> None:
    nodes = _group(
        verbs,
        "node",
        "the nodes of the pools: list, add, set, up, drain, down, remove",
        "The nodes of the pools. A pool with nodes has the GPUs of those that are up.",
        NODE_EXAMPLES,
    )
    one = _verb(
        nodes,
        "list",
        "the nodes, what they have, and the jobs on them",
        "allocator queue node list cluster.db\nallocator queue node list cluster.db --pool a100",
        ("table", "json", "csv"),
        function="list_nodes",
    )
    one.add_argument("--pool", metavar="POOL", help="only nodes of this pool")
    one = _verb(
        nodes,
        "add",
        "add nodes that are alike",
        "allocator queue node add cluster.db n1 n2 --pool a100 --gpus 8 --label rack=r1",
        function="add_nodes",
    )
    one.add_argument("nodes", nargs="+", metavar="NODE")
    one.add_argument("--pool", required=True, metavar="POOL", help="the pool of its GPUs")
    _node_options(one, needs_gpus=True)
    one = _verb(
        nodes,
        "set",
        "change GPUs, CPUs, memory, or labels of nodes",
        "allocator queue node set cluster.db n1 --label rack=r2",
        function="set_nodes",
    )
    one.add_argument("nodes", nargs="+", metavar="NODE")
    _node_options(one, needs_gpus=False)
    for state, words in (
        ("up", "give jobs GPUs of these nodes again"),
        ("drain", "move jobs away from these nodes, and give none of their GPUs to new ones"),
        ("down", "these machines are gone: their jobs are lost and start again elsewhere"),
    ):
        one = _verb(nodes, state, words, f"allocator queue node {state} cluster.db n1 n2")
        one.add_argument("nodes", nargs="+", metavar="NODE")
        one.set_defaults(state=state, call=_load_call("set_node_state"))
    one = _verb(
        nodes,
        "remove",
        "forget nodes on which no job has GPUs",
        "allocator queue node remove cluster.db n1",
        function="remove_nodes",
    )
    one.add_argument("nodes", nargs="+", metavar="NODE")


def _tokens(verbs: Any) -> None:
    tokens = _group(
        verbs,
        "token",
        "who may use the HTTP service: add, list, revoke",
        "The tokens of the HTTP service. The queue keeps their hashes only.",
        "allocator queue token add cluster.db ann --role operator\n"
        "allocator queue token list cluster.db",
    )
    one = _verb(
        tokens,
        "add",
        "make a token and print it, once",
        "allocator queue token add cluster.db ann --role operator\n"
        "allocator queue token add cluster.db vision-ci --role member --tenant vision"
        " --expires-days 90",
        function="add_token",
    )
    one.add_argument("name", metavar="NAME", help="who has it, for the list and the log")
    one.add_argument(
        "--role",
        required=True,
        metavar="ROLE",
        help=(
            "viewer: reads; member: reads and changes the jobs of a tenant; operator: everything"
        ),
    )
    one.add_argument("--tenant", default="", metavar="NAME", help="the tenant of a member")
    one.add_argument(
        "--expires-days",
        type=duration(1e-6, unit_s=DAY_S),
        metavar="TIME",
        help="when it ends, in days or as 12h (default: never)",
    )
    _verb(
        tokens,
        "list",
        "all tokens",
        "allocator queue token list cluster.db",
        function="list_tokens",
    )
    one = _verb(
        tokens,
        "revoke",
        "end a token at once",
        "allocator queue token revoke cluster.db 3",
        function="revoke_token",
    )
    one.add_argument("id", type=parse_integer(1), metavar="ID", help="its number in the list")


def _node_options(parser: argparse.ArgumentParser, needs_gpus: bool) -> None:
    parser.add_argument("--gpus", type=parse_integer(0), required=needs_gpus, metavar="N")
    parser.add_argument("--cpus", type=number(), metavar="N", help="its CPUs (default: no limit)")
    parser.add_argument(
        "--memory-gb", type=number(), metavar="GB", help="its memory (default: no limit)"
    )
    parser.add_argument(
        "--label",
        dest="labels",
        action="append",
        default=[],
        metavar="LEVEL=LABEL",
        help="where it stands, such as rack=r1; may be given several times; empty: nowhere known",
    )
