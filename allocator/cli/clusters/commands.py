"""The commands that advise a cluster that others run."""

from allocator.cli.parsing import (
    POLICY,
    command,
    duration,
    flag,
    formats,
    group,
    many,
    number,
    option,
    parse_future,
    parse_integer,
    repeated,
)
from allocator.cli.queue.commands import PROGRESS_OPTIONS

LOOK = (
    option("--settings FILE", "TOML file of how jobs are taken; docs/slurm.md"),
    repeated(
        "--add FILE",
        "copy rates.csv, models.csv or another table into the snapshot; may be repeated",
    ),
    option("--answers DIR", "read recorded answers in place of the cluster"),
    option("--address URL", "address of the dashboard of a Ray, as in its settings"),
)
"""How to look at a cluster."""
RECORD = option("record RECORD", "file of the record, such as shadow.db")
USES = {
    "advise": "observe kubernetes",
    "run": "run QUEUE --executor kubernetes",
    "check": "admit, together with advise",
    "progress": "jobs whose annotations name a source of progress, together with advise",
}
WATCHING = """
allocator shadow watch slurm shadow.db --every 60s               until it is stopped
allocator shadow watch data/snapshots/demo shadow.db --rounds 1
"""
REPORTING = """
allocator shadow report shadow.db --out shadow.html
"""

ADVISE = (
    command(
        "observe",
        "a cluster as it is, as a snapshot",
        """
        Look at a cluster and write a snapshot of it. Nothing on the cluster is changed. What the
        snapshot could not represent goes to standard error.""",
        """
        allocator observe slurm --out look                        then: allocator solve look --out \
look/plan
        allocator observe ray --out look --address http://head:8265
        allocator observe slurm --out look --answers recorded     from recorded answers, without a \
cluster
        """,
        "clusters.look:observe",
        option(
            "cluster CLUSTER",
            "kind of the cluster: slurm, ray, kubernetes ...; an unknown name lists all",
        ),
        option("--out DIR", "snapshot folder to write", required=True),
        *LOOK,
    ),
    command(
        "shadow",
        "beside a live cluster: what it did, and what would have been decided",
        """
        Beside a live cluster: look at it again and again, decide as `allocator run` would, and
        record what the cluster did and what would have been decided. Nothing on the cluster is
        changed. RECORD is one file, which a look is added to as a whole, and which holds all that
        there is to delete.""",
        WATCHING + REPORTING.lstrip(),
        below=(
            command(
                "watch",
                "look, decide and record",
                """
                CLUSTER is a kind of cluster as of `allocator observe`, or a snapshot folder that
                somebody else writes again and again. A cluster that does not answer is a gap in the
                record, not an end. The watch may be killed at any time and started again with the
                same record; SIGTERM ends it in order.""",
                WATCHING,
                "clusters.shadow:watch",
                option(
                    "cluster CLUSTER",
                    "kind of the cluster, or a snapshot folder; an unknown name lists all kinds",
                ),
                *LOOK,
                RECORD,
                option(
                    "--every TIME",
                    "seconds between looks, and length of each round (default: 300)",
                    duration(0.05),
                    300.0,
                ),
                POLICY,
                option("--rounds N", "stop after N looks (default: never)", parse_integer(1)),
            ),
            command(
                "report",
                "what a record adds up to",
                """
                Idle GPUs that waiting jobs could have used, jobs that waited while others of lower
                value ran, dollars, and the regret of each round. Each figure comes with what it
                assumes. It may be asked for while the watch goes on.""",
                REPORTING,
                "clusters.shadow:report",
                RECORD,
                option("--out FILE", "write a page, too, such as shadow.html"),
                formats("text", "json", "csv", about="csv has a row for each look"),
            ),
        ),
    ),
    command(
        "plan",
        "a plan as commands for a cluster",
        """
        Write the plan of an observed snapshot as commands or patches for its cluster, in the order
        in which they may be run. Nothing is run.""",
        """
        allocator plan look --as slurm                            the plan in look/plan, as a \
script to read
        allocator plan look --as slurm --plan other --out files
        """,
        "clusters.look:plan",
        option("snapshot DIR", "folder of `allocator observe`"),
        option(
            "--as CLUSTER",
            "kind of the cluster: slurm ...; an unknown name lists all",
            required=True,
            dest="cluster",
        ),
        option("--plan DIR", "folder of `allocator solve --out` (default: DIR/plan)"),
        option("--out DIR", "write the files there (default: all on standard output)"),
    ),
    command(
        "submit-slurm",
        "sbatch for a job that may be resized",
        """
        Submit a job to Slurm that the allocator may resize. What it can do goes into its comment as
        JSON; everything after -- goes to sbatch unchanged. Ask for GPUs by --gres or
        --gpus-per-node, whose number can be changed later.""",
        """
        allocator submit-slurm --max-gpus 8 --model bert --total-work 9000 -- --gres=gpu:2 train.sh
        allocator submit-slurm --sizes 1,2,4 --progress-log 'step (?P<step>.+)' -- --gres=gpu:2 \
train.sh
        allocator submit-slurm --plugin > job_submit.lua      the plugin that holds such jobs
        """,
        "clusters.look:submit_slurm",
        group(
            "what the job says of itself (columns of jobs.csv, and its progress)",
            option("--min-gpus N", "smallest size (default: 1)", parse_integer(1)),
            option("--max-gpus N", "largest size (default: the size asked for)", parse_integer(1)),
            option("--sizes N,N", "allowed sizes", many(parse_integer(1))),
            option("--model NAME", "key into rates.csv (default: the name of the job)"),
            option(
                "--total-work W",
                "its whole work (default: seconds of its time limit)",
                number(1e-9),
            ),
            option(
                "--deadline-s TIME",
                "by which it should be done: 2h, a date, unix seconds",
                parse_future,
            ),
            option("--weight X", "scales its value (default: 1)", number(1e-9)),
            option("--restart-s TIME", "pause when its GPUs change", duration()),
            option("--checkpoint-s TIME", "cost of a checkpoint", duration()),
            option("--checkpoint-every-s TIME", "interval of checkpoints", duration(1e-9)),
            *PROGRESS_OPTIONS,
        ),
        flag("--show", "print the call of sbatch, and stop"),
        flag("--plugin", "print job_submit.lua, and stop"),
        option("sbatch SBATCH", "after --: options and script", nargs="*"),
    ),
    command(
        "admit",
        "answer admission checks of Kueue",
        """
        Answer the admission checks whose controllerName is allocator.example/gpu-allocator: decide
        a round for the jobs that Kueue has reserved quota for, let the workloads start that the
        plan starts, on its nodes, and send back those that it pauses. Quota stays with Kueue.""",
        """
        allocator admit --once --context kind-test
        allocator admit --every 60 --objective completion
        """,
        "clusters.look:admit",
        option("--context NAME", "context of the kubeconfig"),
        option("--kubeconfig FILE", "default: as kubectl finds it"),
        option("--objective OBJECTIVE", "what a plan is worked out for (default: progress)"),
        option("--every TIME", "seconds (default: 60)", duration(1.0), 60.0),
        flag("--once", "one round only"),
    ),
    command(
        "rbac",
        "roles of Kubernetes for the allocator",
        """
        Print the roles of Kubernetes for a way of use, and the commands that bind them. They allow
        what it does, and nothing else.""",
        "allocator rbac run > allocator-run.yaml",
        "clusters.look:rbac",
        option(
            "use",
            "what they are for: " + ", ".join(f"{name} ({what})" for name, what in USES.items()),
            choices=tuple(USES),
        ),
    ),
)
