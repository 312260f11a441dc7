"""The commands that run a cluster: its queue, its controller and its service."""

from argparse import SUPPRESS
from collections.abc import Iterator, Mapping
from typing import Any

from allocator.cli.parsing import (
    DAY_S,
    POLICY,
    QUEUE,
    TABLE,
    TABLE_OR_CSV,
    Add,
    Command,
    command,
    duration,
    effort,
    flag,
    group,
    number,
    one_of,
    option,
    pair,
    parse_future,
    parse_integer,
    repeated,
    seconds,
    settings,
)
from allocator.domain.schema.columns import JOBS, RULE, ColumnKind
from allocator.domain.schema.workload_columns import CELLS, CHANGEABLE, FILTERS, RECORDED, WORKLOAD

NAMES = tuple(c.name for c in WORKLOAD.columns if c not in (*CELLS, *RECORDED))
"""Those that `allocator queue submit` sets."""
WORDS = {
    "job_id": "unique name (default: made of the model and a number; then give a --key)",
    "deadline_s": "by which it should be done: 2h from now, a date, or unix seconds",
    "submitted_s": "from which on it counts, as for the deadline (default: now)",
    "total_work": "whole work of the job, in the model's unit",
}
METAVARS = {
    ColumnKind.INTEGER: "N",
    ColumnKind.BOOLEAN: "BOOL",
    ColumnKind.INTEGERS: "N|N",
    ColumnKind.TEXTS: "NAME|NAME",
}


def job_options(*names: str) -> Iterator[Add]:
    """Yield options for columns of jobs, whose help is what the schema says of them."""
    for name in names:
        column = JOBS.column(name)
        number = "TIME" if name.endswith("_s") else "X"
        metavar = number if column.kind is ColumnKind.NUMBER else METAVARS.get(column.kind, "NAME")
        words = WORDS.get(name, column.doc).replace("%", "%%")
        if column.default not in (None, "", RULE) and "default" not in words:
            words += f" (default: {str(column.default).lower().removesuffix('.0')})"
        yield option(f"--{name.replace('_', '-')} {metavar}", words)


PROGRESS_OPTIONS = (
    option(
        "--progress-log REGEX",
        "finds its progress in what it logs: (?P<work>...) or (?P<step>...)",
    ),
    option("--progress-url URL", "its metrics as text of Prometheus"),
    option("--progress-metric NAME", "metric there that counts its work"),
)
"""How its progress is seen."""


DRY_RUN = "dry-run"
LISTEN = "127.0.0.1:8642"


def verb(
    name: str,
    words: str,
    examples: str,
    *arguments: Add,
    output: Add | None = TABLE,
    function: str = "",
    call: str = "queue.verbs:call",
    defaults: Mapping[str, str] | None = None,
    **more: Any,
) -> Command:
    """Return a command that calls a function of verbs.py, by default its namesake."""
    about = words[0].upper() + words[1:] + "."
    first = (QUEUE, output) if output else (QUEUE,)
    defaults = {"verb": name, "function": function or name.replace("-", "_"), **(defaults or {})}
    return command(
        name, words, about, examples, call, *first, *arguments, defaults=defaults, **more
    )


SOME_JOBS = option("jobs JOB", nargs="+")
SOME_NODES = option("nodes NODE", nargs="+")
STATES = "active, queued, running, paused, held, done, cancelled, failed; may be repeated"
OF_NODES = (
    option("--cpus N", "its CPUs (default: no limit)", number()),
    option("--memory-gb GB", "its memory (default: no limit)", number(), dest="host_memory_gb"),
    repeated(
        "--label LEVEL=LABEL",
        "where it stands, such as rack=r1; may be given several times; empty: nowhere known",
        pair("LEVEL=LABEL"),
        dest="labels",
    ),
)
TENANT = command(
    "tenant",
    "the tree of tenants and their quotas: list, set",
    "The tree of tenants, and their quotas.",
    "allocator queue tenant list cluster.db\n"
    "allocator queue tenant set cluster.db vision --max-gpus 16",
    below=(
        verb(
            "list",
            "the tenants and their quotas by GPU type and pool",
            "allocator queue tenant list cluster.db",
            function="list_tenants",
        ),
        verb(
            "set",
            "add a tenant or a quota of it, or change them",
            "allocator queue tenant set cluster.db research --max-gpus 24\n"
            "allocator queue tenant set cluster.db vision --parent research --max-gpus 16\n"
            "allocator queue tenant set cluster.db vision --type A100 --guaranteed-gpus 8"
            " --lend-gpus 4",
            option("tenant TENANT"),
            option("--parent TENANT", 'the tenant above it; "" removes it'),
            option("--weight W", "share in fairness objectives"),
            option("--budget-per-hour USD", "of all GPUs of its jobs and of those below it"),
            option(
                "--gpu-hours-per-month H",
                'most GPU-hours of its tree in a calendar month (UTC); "" for no limit',
            ),
            option("--max-jobs N", 'most of its own jobs that run at once; "" for no limit'),
            option("--type TYPE", "the GPUs of this type only", dest="gpu_type"),
            option("--pool POOL", "the GPUs of this pool only"),
            option("--max-gpus N", 'most GPUs at once; "" for no limit'),
            option("--guaranteed-gpus N", "GPUs it gets when it can use them"),
            option(
                "--lend-gpus N",
                'GPUs of --guaranteed-gpus that others may hold while it can not; "" for all',
            ),
            function="set_tenant",
        ),
    ),
)
NODE = command(
    "node",
    "the nodes of the pools: list, add, set, up, drain, down, remove",
    "The nodes of the pools. A pool with nodes has the GPUs of those that are up.",
    """
    allocator queue node add cluster.db n1 n2 --pool a100 --gpus 8 --label rack=r1
    allocator queue node list cluster.db
    """,
    below=(
        verb(
            "list",
            "the nodes, what they have, and the jobs on them",
            "allocator queue node list cluster.db\n"
            "allocator queue node list cluster.db --pool a100",
            option("--pool POOL", "only nodes of this pool"),
            output=TABLE_OR_CSV,
            function="list_nodes",
        ),
        verb(
            "add",
            "add nodes that are alike",
            "allocator queue node add cluster.db n1 n2 --pool a100 --gpus 8 --label rack=r1",
            SOME_NODES,
            option("--pool POOL", "the pool of its GPUs", required=True),
            option("--gpus N", None, parse_integer(0), required=True),
            *OF_NODES,
            function="change_nodes",
        ),
        verb(
            "set",
            "change GPUs, CPUs, memory, or labels of nodes",
            "allocator queue node set cluster.db n1 --label rack=r2",
            SOME_NODES,
            option("--gpus N", None, parse_integer(0)),
            *OF_NODES,
            function="change_nodes",
        ),
        verb(
            "up",
            "give jobs GPUs of these nodes again",
            "allocator queue node up cluster.db n1 n2",
            SOME_NODES,
            function="change_nodes",
        ),
        verb(
            "drain",
            "move jobs away from these nodes, and give none of their GPUs to new ones",
            "allocator queue node drain cluster.db n1 n2\n"
            "allocator queue node drain cluster.db n1 --at 6h --until 10h",
            SOME_NODES,
            option("--at TIME", "when they leave (default: now)", parse_future),
            option("--until TIME", "when they are back (default: by `up`)", parse_future),
            function="drain_nodes",
        ),
        verb(
            "down",
            "these machines are gone: their jobs are lost and start again elsewhere",
            "allocator queue node down cluster.db n1 n2",
            SOME_NODES,
            function="change_nodes",
        ),
        verb(
            "remove",
            "forget nodes on which no job has GPUs",
            "allocator queue node remove cluster.db n1",
            SOME_NODES,
            function="change_nodes",
        ),
    ),
)
RESERVE = command(
    "reserve",
    "GPUs that are kept from a time on: add, list, cancel",
    "Reservations: GPUs of a pool that are kept for a job, for a tenant, or for nobody.",
    """
    allocator queue reserve add cluster.db big --pool a100 --gpus 16 --at 6h --job bert-3
    allocator queue reserve list cluster.db
    """,
    below=(
        verb(
            "add",
            "keep GPUs from a time on, or change what a reservation keeps",
            "allocator queue reserve add cluster.db big --pool a100 --gpus 8 --at 6h --job bert-3\n"
            "allocator queue reserve add cluster.db upgrade --pool a100 --gpus 8 --at 6h"
            " --until 8h",
            option("reservation NAME"),
            option("--pool POOL", "the pool of the GPUs", required=True),
            option("--gpus N", "that all others leave", parse_integer(1), required=True),
            option("--at TIME", "when it begins (default: now)", parse_future, dest="at_s"),
            option("--until TIME", "when it ends (default: never)", parse_future, dest="until_s"),
            option("--job JOB", "for this job, until it ends", dest="job_id"),
            option("--tenant TENANT", "for its jobs (default: for nobody)"),
            function="reserve",
        ),
        verb(
            "list",
            "the reservations",
            "allocator queue reserve list cluster.db",
            output=TABLE_OR_CSV,
            function="list_reservations",
        ),
        verb(
            "cancel",
            "end a reservation",
            "allocator queue reserve cancel cluster.db big",
            option("reservation NAME"),
            function="cancel_reservation",
        ),
    ),
)
TOKEN = command(
    "token",
    "who may use the HTTP service: add, list, revoke",
    "The tokens of the HTTP service. The queue keeps their hashes only.",
    "allocator queue token add cluster.db ann --role operator\n"
    "allocator queue token list cluster.db",
    below=(
        verb(
            "add",
            "make a token and print it, once",
            "allocator queue token add cluster.db ann --role operator\n"
            "allocator queue token add cluster.db vision-ci --role member --tenant vision"
            " --expires-days 90",
            option("name NAME", "who has it, for the list and the log"),
            option(
                "--role ROLE",
                "viewer: reads; member: reads and changes the jobs of a tenant; operator:"
                " everything",
                required=True,
            ),
            option("--tenant NAME", "the tenant of a member", default=""),
            option(
                "--expires-days TIME",
                "when it ends, in days or as 12h (default: never)",
                duration(1e-6, unit_s=DAY_S),
            ),
            function="add_token",
        ),
        verb("list", "all tokens", "allocator queue token list cluster.db", function="list_tokens"),
        verb(
            "revoke",
            "end a token at once",
            "allocator queue token revoke cluster.db 3",
            option("id ID", "its number in the list", parse_integer(1)),
            function="revoke_token",
        ),
    ),
)
COMMANDS = command(
    "queue",
    "the durable queue: submit, list, hold, cancel ...",
    """
    QUEUE is a path (an SQLite file, nothing to set up) or a URL (postgresql://USER@HOST/DATABASE,
    for several machines). What a command confirmed with exit code 0 is on disk. Every verb can be
    repeated: it does nothing twice.""",
    """
    allocator queue init cluster.db --from data/snapshots/demo      a queue with the pools, rates \
and jobs of a snapshot
    allocator queue submit cluster.db --job-id bert-1 --model bert --total-work 9e6 --max-gpus 8 \
-- python train.py
    allocator queue list cluster.db --state active                  what waits and runs
    """,
    below=(
        verb(
            "init",
            "make a queue",
            "allocator queue init cluster.db --from data/snapshots/demo\n"
            "allocator queue init postgresql://me@db/cluster --from my-cluster",
            option(
                "--from SNAPSHOT",
                "fill it with the pools, tenants, rates, settings and jobs of a snapshot folder;"
                " what runs there holds its GPUs here. Times move so that its now is now, unless"
                " they are unix seconds. Jobs of an observed cluster are left to it",
                dest="source",
            ),
            output=None,
            call="queue.verbs:init",
        ),
        verb(
            "submit",
            "submit one job; what follows -- is its command",
            "allocator queue submit cluster.db --job-id bert-1 --model bert --total-work 9e6"
            " --max-gpus 8 -- python train.py\nallocator queue submit cluster.db --key run-17"
            " --model bert --total-work 9e6 --max-gpus 8",
            *job_options(*NAMES),
            option(
                "--key KEY",
                "submission key: the same again is the same job, not a second one (default: the"
                " job_id)",
            ),
            repeated(
                "--env NAME=VALUE",
                "environment of the command; may be given several times",
                pair("NAME=VALUE"),
            ),
            option("--workdir DIR", "where the command runs"),
            *PROGRESS_OPTIONS,
            takes_command=True,
        ),
        verb(
            "list",
            "jobs in the order of submission",
            "allocator queue list cluster.db --state active\n"
            "allocator queue list cluster.db --format json",
            repeated("--state STATE", STATES),
            *(option(f"--{column} NAME") for column in FILTERS),
            option("--limit N", "the latest N", parse_integer(1)),
            output=TABLE_OR_CSV,
            function="list_",
        ),
        verb(
            "show",
            "one job with everything it was given and all it ever held",
            "allocator queue show cluster.db bert-1",
            option("job JOB"),
        ),
        verb(
            "change",
            "change weight, sizes or deadline of jobs",
            "allocator queue change cluster.db bert-1 --weight 2\n"
            "allocator queue change cluster.db bert-1 --min-gpus 2 --max-gpus 4",
            SOME_JOBS,
            *job_options(*CHANGEABLE),
        ),
        *(
            verb(
                name,
                words,
                f"allocator queue {name} cluster.db bert-1 bert-2",
                SOME_JOBS,
                function="change_state",
            )
            for name, words in (
                (
                    "hold",
                    "give jobs nothing until release; running ones are stopped with a checkpoint",
                ),
                ("release", "undo hold"),
                ("cancel", "end jobs; running ones are stopped first"),
                ("retry", "bring parked or cancelled jobs back; end the delay after failures"),
            )
        ),
        verb(
            "import-csv",
            "submit the jobs of a CSV file, all or none",
            "allocator queue import-csv cluster.db workload.csv\n"
            "generate-jobs | allocator queue import-csv cluster.db -",
            option(
                "file FILE",
                "columns of workload.csv or jobs.csv, and key, command, environment, workdir; - is"
                " standard input",
            ),
        ),
        verb(
            "export-csv",
            "every job as CSV, for import-csv and for other programs",
            "allocator queue export-csv cluster.db > jobs.csv",
            option("file FILE", "default: standard output", nargs="?", default="-"),
            repeated("--state STATE", "only these, as in list"),
            output=None,
            defaults={"format": "csv"},
        ),
        verb(
            "costs",
            "GPU-hours and dollars by month, day, tenant, user, model or job",
            "allocator queue costs cluster.db\n"
            "allocator queue costs cluster.db --by tenant,model --months 3 --format csv",
            option(
                "--by KEYS",
                "what to sum by: month, day, tenant, user, model, job_id (default: month,tenant)",
                lambda text: text.split(","),
                ["month", "tenant"],
            ),
            option(
                "--months N",
                "number of months, the present one included (default: 1)",
                parse_integer(1, 1200),
                1,
            ),
            option("--tenant TENANT", "only its own jobs"),
            output=TABLE_OR_CSV,
        ),
        verb(
            "pools",
            "the pools and who holds how much of them; change their GPUs",
            "allocator queue pools cluster.db\nallocator queue pools cluster.db --set a100=24",
            repeated(
                "--set POOL=GPUS",
                "GPUs of a pool that may be used from now on; may be given several times",
                pair("POOL=GPUS", parse_integer(0)),
                dest="changes",
            ),
            output=TABLE_OR_CSV,
        ),
        verb(
            "config",
            "the settings of config.toml; change them",
            "allocator queue config cluster.db --set interval_s=60 --set budget_per_hour=120",
            repeated(
                "--set KEY=VALUE",
                "an empty value is the default; may be given several times",
                pair("KEY=VALUE"),
                dest="changes",
            ),
        ),
        verb(
            "purge",
            "forget jobs that are done or cancelled, and all they held",
            "allocator queue purge cluster.db --older-than 90",
            option(
                "--older-than TIME",
                "since they ended, in days or as 12h",
                duration(unit_s=DAY_S),
                required=True,
            ),
        ),
        verb(
            "cluster",
            "replace pools, tenants, rates, sharing and settings by those of a snapshot",
            "allocator queue cluster cluster.db --from my-cluster",
            option("--from SNAPSHOT", "its jobs do not count", required=True, dest="source"),
            output=None,
            function="replace_cluster",
        ),
        verb(
            "adopt",
            "make a queue that was restored or made anew and the state of its executor agree",
            "allocator queue adopt cluster.db\n"
            "allocator queue adopt cluster.db --executor local --state /var/lib/allocator",
            option(
                "--executor NAME",
                "whose state it is (default: the executor that the queue was run by)",
            ),
            option(
                "--state DIR",
                "folder of the state (default: the one that the queue was run with, else next to an"
                " SQLite queue)",
            ),
        ),
        verb(
            "export",
            "the queue of now as a snapshot folder, for solve, explain and whatif",
            "allocator queue export cluster.db now && allocator solve now",
            option("folder SNAPSHOT_DIR", "new, or an earlier export, which it replaces"),
            output=None,
        ),
        TENANT,
        NODE,
        RESERVE,
        TOKEN,
    ),
)
RUN = (
    COMMANDS,
    command(
        "run",
        "the controller of a queue",
        """
        Without --executor this is a dry run: it decides one round, says what that would stop and
        start, and writes nothing. With an executor it acts: on Slurm, Kubernetes, Ray, this
        machine, or by files.

        Decides again and again which job gets which GPUs, writes the round to the journal, and has
        it carried out. It may be killed at any time and started again; started twice, the second
        one stands by and takes over when the first is gone. SIGTERM ends it in order: jobs run on.
        The exit code is then 0. A decision may take half of the interval, unless --time-limit says
        otherwise.""",
        """
        allocator run cluster.db                                       dry run: say what would be \
done now, do nothing
        allocator run cluster.db --executor local --devices a100=0-7,v100=8-15
        allocator run cluster.db --executor slurm --state /shared/allocator --every 300 --react 20
        allocator run cluster.db --every 300 --react 20 --executor files --state actor --metrics \
/run/allocator.prom
        """,
        "queue.run:run",
        QUEUE,
        group(
            "when",
            one_of(
                seconds(
                    "--every TIME",
                    "seconds between rounds (default: interval_s of the queue's settings)",
                    0.05,
                ),
                flag(
                    "--once",
                    "one round now, for cron or a systemd timer; waits "
                    "for its stops, at most the grace period and 5 s",
                ),
            ),
            seconds(
                "--react TIME",
                "arrivals, ends and changes of the cluster cause early rounds, at least TIME after"
                " the one before",
                1e-3,
            ),
            seconds(
                "--poll TIME",
                "seconds between looks at the machines (default: a tenth of the interval, at"
                " most 1)",
                1e-3,
            ),
        ),
        group(
            "machines",
            option(
                "--executor NAME",
                "dry-run (default): says what one round would do now, and changes nothing at all;"
                " slurm, kubernetes, ray: jobs of that cluster; local: processes of this machine;"
                " files: an actor of your own; or one that an installed package brings",
                default=DRY_RUN,
            ),
            option(
                "--state DIR",
                "folder of the executor's state (default: next to an SQLite queue)",
            ),
            option(
                "--grace TIME",
                "local: seconds for a checkpoint between SIGTERM and SIGKILL (default: 60)",
                duration(),
                60.0,
            ),
            option(
                "--devices POOL=0-3,POOL=4-7",
                "local: GPU indices of each pool, or of each node where it has nodes; more than"
                " it has "
                "now allow it to be raised later (default: counted through in the order of the"
                " pools)",
            ),
        ),
        POLICY,
        *settings("the queue's", "horizon"),
        effort(None, "each decision"),
        flag("--cold", "every round starts anew instead of from the prices of the one before"),
        group(
            "stability and repair",
            seconds("--cooldown TIME", "a job that was changed is left alone for TIME"),
            seconds("--min-run TIME", "a started job runs at least TIME"),
            flag(
                "--payback",
                "hold changes back that do not pay for their pause before the next change is"
                " expected",
            ),
            seconds(
                "--stall TIME",
                "a job without progress for TIME has failed; inf: never (default: ten intervals,"
                " at least 600)",
                1e-3,
                infinite=True,
            ),
            flag("--no-learning", "do not correct rates by what is observed"),
        ),
        group(
            "what it tells",
            option("--log FILE", "append JSON lines to FILE (default: standard error)"),
            option("--metrics FILE", "textfile for Prometheus, replaced after every round"),
            option(
                "--port [ADDRESS:]N",
                "answer /metrics at this port (default of ADDRESS: 127.0.0.1)",
            ),
            option(
                "--serve ADDRESS:PORT",
                f"the pages and the API too, as `allocator serve` (default: {LISTEN})",
                nargs="?",
                const=LISTEN,
            ),
        ),
    ),
    command(
        "serve",
        "the pages and the HTTP API of a queue",
        """
        Serves the pages for people and the API for programs, until SIGTERM. Reading and changing
        needs a token, which "allocator queue token add" makes. It runs next to the controller, or
        without one.""",
        """
        allocator serve cluster.db                                     http://127.0.0.1:8642, with \
tokens
        allocator serve cluster.db --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem \
--name gpus.example.org
        allocator serve cluster.db --open-reading                      reading without a token
        allocator serve cluster.db --behind-tls --name gpus.example.org --user-header \
X-Forwarded-User
        """,
        "queue.serve:serve",
        QUEUE,
        option(
            "--listen ADDRESS:PORT",
            f"where to listen; port 0 is a free one (default: {LISTEN})",
            default=LISTEN,
        ),
        flag("--open-reading", "whoever reaches the service reads as a viewer, without a token"),
        repeated(
            "--name NAME",
            "a name in its URL besides localhost and IP addresses; may be repeated",
            dest="names",
        ),
        option("--tls-cert FILE", "certificate, for https"),
        option("--tls-key FILE", "key of the certificate"),
        flag("--behind-tls", "another server in front of this one speaks https"),
        option(
            "--user-header HEADER",
            "a proxy in front logs people in and names them in this header: each has the rights"
            " of the"
            " token of that name",
        ),
        repeated(
            "--proxy ADDRESS",
            "address of that proxy; may be repeated (default: this machine)",
            dest="proxies",
            default=None,
        ),
        option("--rate N", "requests per second of one token (default: 20)", number(0.1)),
        seconds(
            "--advice-limit TIME",
            "seconds that a what-if or an explanation may take (default: 30)",
            1.0,
            dest="advice_s",
        ),
        option("--log FILE", "append JSON lines to FILE (default: standard error)"),
        flag("--ends-with-input", SUPPRESS),
    ),
    command(
        "history",
        "the journal of rounds",
        "Print the journal of a queue, oldest round first.",
        """
        allocator history cluster.db                     the last rounds
        allocator history cluster.db --format json --last 1000
        allocator history cluster.db --estimates         what was expected of jobs, and what \
happened
        """,
        "queue.history:history",
        QUEUE,
        option("--last N", "so many rounds (default: 20)", parse_integer(1), 20),
        flag(
            "--estimates",
            "compare the expected starts and ends of each round with what happened",
        ),
        TABLE,
    ),
    command(
        "replay",
        "decide a round of the journal again",
        """
        Decide a round again from its snapshot and compare the plans byte by byte. Exit code 1: they
        differ.""",
        """
        allocator replay cluster.db 17                   decide round 17 again and compare
        allocator replay cluster.db 17 --out round17     and write its snapshot and plan
        """,
        "queue.history:replay",
        QUEUE,
        option("round ROUND", "its number (default: the last)", parse_integer(1), nargs="?"),
        option("--out DIR", "write the snapshot and plan.json there"),
    ),
    command(
        "status",
        "what a queue and its controller do",
        """
        The leading controller, jobs by state, pools, the last round, stuck and parked jobs,
        corrected rates.""",
        """
        allocator status cluster.db                      the leading controller, jobs, pools, the \
last round
        allocator status cluster.db --format json
        """,
        "queue.history:status",
        QUEUE,
        TABLE,
    ),
)
