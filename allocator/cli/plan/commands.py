"""The commands that decide one round."""

import math
from pathlib import Path

from allocator.cli.parsing import (
    POLICY,
    SNAPSHOT,
    TABLE,
    TABLE_OR_CSV,
    command,
    effort,
    flag,
    folder_or_queue,
    formats,
    group,
    number,
    objective,
    one_of,
    option,
    pair,
    parse_integer,
    repeated,
    settings,
    words,
)

# few budgets can be proven to the last digit, and a curve shows what is open
PLAN_S = 5.0


def _parse_value(text: str) -> tuple[float, bool]:
    """Return (value, whether it is a share) of '95%' or '12.5'."""
    share = text.strip().endswith("%")
    value = number()(text.strip().removesuffix("%")) / (100.0 if share else 1.0)
    if share and value > 1:
        raise ValueError(f"{text} is no share from 0% to 100%")
    return value, share


PLAN = (
    command(
        "solve",
        "one decision per snapshot folder",
        """
        Decide which job gets what. Several folders are a batch: a summary line each (JSON lines
        with --format json), one failure does not stop the others, and the exit code is the gravest:
        1, then 2, 3, 4, 5, 0.""",
        """
        allocator solve data/snapshots/demo
        allocator solve data/snapshots/demo --solver highs --time-limit 1 --out plans --format json
        allocator solve snapshots/* --jobs 2 --out plans          a batch: plans/NAME/plan.json, a \
line each
        """,
        "plan.solve:solve",
        option("snapshots SNAPSHOT", "folder with jobs.csv, pools.csv, rates.csv ...", nargs="+"),
        option(
            "--policy NAME",
            "mip (default), horizon, marginal, greedy, las, sia ...; an unknown name lists all",
            default="mip",
        ),
        objective(),
        *settings("config.toml's", "budget", "horizon"),
        effort(),
        group(
            "output",
            option("--out DIR", "write plan.json and plan.csv there; a batch into DIR/NAME/"),
            TABLE_OR_CSV,
            flag("--reasons", "on a terminal: all jobs, and why each gets less than it could use"),
            option(
                "--jobs N",
                "snapshots at the same time (default: 1)",
                parse_integer(1, 1024),
                1,
            ),
            option(
                "--log FILE",
                "write there what was done: prices, steps and log of "
                "the solver, bound (one snapshot only)",
            ),
            option(
                "--write-model FILE",
                "write the round's model too, as .mps, .lp or .npz (one snapshot only)",
            ),
        ),
    ),
    command(
        "explain",
        "why a job got what it got, and what would change it",
        """
        The reason, the numbers behind it, the price to beat, the smallest changes that would admit
        the job, and who would lose. Each change was verified: with these values in the files, the
        same options give the job what is said. Each decision made on the way has the given time
        limit.""",
        """
        allocator explain data/snapshots/demo llm-tune
        allocator explain my-cluster bert-3 --objective flow --budget 40 --time-limit 2
        allocator explain cluster.db bert-3
        """,
        "plan.whatif:explain",
        folder_or_queue("SNAPSHOT", "snapshot folder"),
        option("job JOB", "job_id of the job"),
        POLICY,
        objective(),
        *settings("config.toml's", "budget", "horizon"),
        option(
            "--tries N",
            "decisions that the search for changes may make (default: 3 to 60, fewer in larger"
            " rounds)",
            parse_integer(0),
        ),
        formats("text", "json"),
        effort(),
    ),
    command(
        "whatif",
        "the round with other values, against the round as it is",
        """
        Decide the round as it is and once more with other values; show the jobs that differ, what
        both plans are valued in one scale, the hours of work and the dollars; and where nothing
        changes, which limits bind. WHERE is a setting of config.toml (budget_per_hour,
        horizon.rounds) or FILE.NAME.COLUMN: pools.a100.gpus, jobs.bert-3.weight,
        tenants.team-1.max_gpus. An empty value is the default. A new pool needs its gpu_type and
        gpus. With --submit: when a job would start that is not there yet, whom it would push away,
        and what would make it start sooner.""",
        """
        allocator whatif data/snapshots/demo --set pools.a100.gpus=12                      four \
more GPUs
        allocator whatif data/snapshots/demo --set budget_per_hour=24 --set jobs.rank.weight=2
        allocator whatif data/snapshots/demo --set pools.spot.gpu_type=A100 --set \
pools.spot.gpus=8 --out bigger
        allocator whatif data/snapshots/demo --submit data/examples/submit/train.sbatch     a new \
job
        """,
        "plan.whatif:whatif",
        folder_or_queue("SNAPSHOT", "snapshot folder, which stays as it is"),
        one_of(
            repeated(
                "--set WHERE=VALUE",
                "what is changed; may be given several times",
                pair("WHERE=VALUE, such as pools.a100.gpus=12", str.strip),
                None,
                dest="values",
            ),
            option(
                "--submit FILE",
                "a new job: sbatch script, manifest of a Kubernetes Job, JobSet, PyTorchJob or"
                " RayJob, or CSV file with one row of jobs.csv",
            ),
            is_required=True,
        ),
        option("--policy NAME", "who decides both (default: mip)", default="mip"),
        objective(),
        effort(),
        option("--out DIR", "write the changed snapshot there, for solve and explain"),
        formats("table", "json", about="json has both plans"),
    ),
    command(
        "validate",
        "every fault of the input at once",
        """
        Check a snapshot or workload folder. Faults go to standard error, exit code 3; many that
        differ only in their line and job are one line with their number. With --format json
        standard output has every fault and every warning.""",
        """
        allocator validate data/snapshots/demo
        allocator validate my-workload                   a folder with workload.csv
        allocator validate my-cluster --format json      every fault by itself, for programs
        """,
        "plan.checks:validate",
        option("snapshot FOLDER", "folder with jobs.csv or workload.csv, pools.csv ..."),
        TABLE,
    ),
    command(
        "promise",
        "which deadlines can still be promised, all together",
        """
        Promises deadlines to running jobs first, then by submission, each as long as all promises
        can be kept together by one plan; tells why the others cannot, and the earliest deadline
        that could be promised to them or to jobs without one. The table shows jobs with deadlines;
        csv and json all.""",
        """
        allocator promise data/examples/deadlines                   which deadlines can be kept, \
and why the others cannot
        allocator promise my-cluster --format csv > promises.csv    every job, with the earliest \
deadline to offer
        allocator promise my-cluster --out answers                  promises.csv and promises.json
        """,
        "plan.checks:promise",
        SNAPSHOT,
        option("--out DIR", "write promises.csv and promises.json there"),
        TABLE_OR_CSV,
    ),
    command(
        "frontier",
        "what money buys: time-cost frontier of jobs or of a round",
        """
        What money buys. Of a snapshot: the round at a series of budgets, each plan with the bound
        that none beats, the price of a dollar, and the curve that bounds all plans in between. With
        --jobs: every way (pool, size) to run these jobs to their end, starting now, and for several
        the sum of weighted hours against the sum of dollars. docs/tenants.md.""",
        """
        allocator frontier data/snapshots/medium --points 25 --out curve     progress against \
dollars per hour
        allocator frontier data/snapshots/medium --keep 95% --out cheaper    the cheapest plan \
that keeps 95 % of the progress
        allocator frontier data/snapshots/demo --jobs pretrain,llm-tune      hours against \
dollars, to the end of the jobs
        """,
        "plan.frontier:frontier",
        SNAPSHOT,
        option("--jobs A,B", "of these jobs to their end, instead of the round", words),
        option(
            "--points N",
            "plans to look for at most (default: 25; with --keep 60)",
            parse_integer(2, 100_000),
        ),
        option(
            "--dollars",
            "which count: listed prices of all pools, as in budget_per_hour (default), or what"
            " is added to the bill: reserved pools are paid for anyway",
            default="listed",
            choices=("listed", "added"),
        ),
        objective(),
        option(
            "--max-budget USD",
            "dollars per hour at the right end (default: what the best plan without a budget"
            " spends)",
            number(),
            math.inf,
        ),
        option(
            "--keep V|P%",
            "instead of the curve: the cheapest plan of value V, or P %% of the best plan",
            _parse_value,
        ),
        effort(PLAN_S, "each plan"),
        group(
            "output",
            option(
                "--out DIR",
                "write frontier.json, frontier.csv, frontier.svg, with "
                "--jobs ways.csv; with --keep plan.json, plan.csv, "
                "keep.json",
                Path,
            ),
            TABLE_OR_CSV,
        ),
    ),
    command(
        "schema",
        "JSON Schema of snapshots, workloads and plans",
        "Print a JSON Schema.",
        """
        allocator schema                         columns of the snapshot files
        allocator schema workload                columns of the workload files
        allocator schema result > plan.schema.json
        """,
        "plan.checks:schema",
        option(
            "what",
            "default: snapshot",
            default="snapshot",
            nargs="?",
            choices=("snapshot", "workload", "result"),
        ),
    ),
)
