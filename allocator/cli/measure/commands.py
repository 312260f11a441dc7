"""The commands that simulate, measure and report."""

import math
from pathlib import Path

from allocator.cli.models.commands import IMPORT
from allocator.cli.parsing import (
    TABLE,
    command,
    duration,
    effort,
    flag,
    folder_or_queue,
    group,
    many,
    number,
    objective,
    option,
    parse_integer,
    seconds,
    settings,
    words,
)
from allocator.domain.schema.columns import SIZES, SPEEDS
from allocator.solvers.effort import GAP

OPTIONS = (
    objective("as config.toml says, else flow"),
    *settings("config.toml's", "budget", "interval", "ageing", "horizon"),
    seconds(
        "--react TIME",
        "arrivals and completions cause early rounds, at least TIME after the one before",
        1e-3,
    ),
    seconds(
        "--announce TIME",
        "changes of capacity.csv and prices.csv are in the snapshots TIME ahead; the"
        " policy horizon plans with them (default: 0, never)",
        infinite=True,
    ),
    option(
        "--prove N",
        "policies that decide without a bound get one in every N-th round, 0: never (default: 1)",
        parse_integer(0),
        dest="prove_every",
    ),
)
"""How rounds are decided, as in a benchmark of policies."""
WORLD = (
    option(
        "--speeds",
        "what policies know of speeds: the truth; a wrong profile, corrected while jobs run;"
        " or what they learn while jobs run (default: known)",
        choices=SPEEDS,
    ),
    option(
        "--misjudged SIGMA",
        "true speed of a job on a GPU type / believed speed: log-normal with this sigma, mean 1",
        number(),
    ),
    option(
        "--misjudged-sizes SIGMA",
        "believed total_work / true: log-normal with this sigma, median 1",
        number(),
    ),
    option(
        "--misjudged-slowdowns SIGMA",
        "believed slowdown of two models on the same GPUs / true: log-normal with this sigma,"
        " mean 1; corrected while jobs run",
        number(),
    ),
    option(
        "--sizes",
        "what is known of sizes, instead of what config.toml says",
        choices=SIZES,
    ),
    option(
        "--losses SIGMA",
        "jobs report losses with this noise, and what is left of them follows from these",
        number(),
        dest="loss_noise",
    ),
    option("--noise SIGMA", "the same, anew at every start", number()),
    option(
        "--failures RATE",
        "failures per GPU-hour; a job falls back to its last checkpoint",
        number(),
        dest="failures_per_gpu_hour",
    ),
    seconds("--latency TIME", "a plan comes true TIME after its round"),
    option(
        "--charge-decisions F",
        "and F times the seconds that it took to decide later (1: as measured)",
        number(),
        dest="latency_factor",
    ),
)
"""Where the world is not as believed, as in a benchmark of policies."""


def _shares(text: str) -> tuple[float, ...]:
    shares = many(number())(text)
    if any(share > 1 for share in shares):
        raise ValueError(f"{text}: a share is a number from 0 to 1")
    return tuple(share for share in shares if share > 0)


def _range(text: str) -> tuple[float, float]:
    low, sign, high = text.partition("..")
    if not sign:
        raise ValueError(f"{text} is not LOW..HIGH")
    span = number()(low), number()(high)
    if not span[0] <= 1 <= span[1]:
        raise ValueError(f"{text} does not hold 1, the size asked for")
    return span


RUN_OR_REPORT = option(
    "what",
    "run (default) or report",
    default="run",
    nargs="?",
    choices=("run", "report"),
)


def list_generators() -> str:
    """Return the generators of workloads, two lines each."""
    from allocator.bench.workloads.registry import GENERATORS

    return "\n".join(
        f"  {g.name:<13} {g.about}\n{'':<16}{g.jobs} jobs, load {g.load:g} ({g.unit})"
        for g in GENERATORS.values()
    )


MEASURE = (
    command(
        "simulate",
        "a trace under one or more policies",
        """
        Every policy gets the same jobs, machines and luck. With --out, results.json, jobs.csv,
        timeline.csv, rounds.csv and spans.csv are written there, and a simulation that was killed
        goes on where it was when the same command is given.""",
        """
        allocator simulate data/workloads/demo --policy mip,greedy
        allocator simulate data/workloads/bursty --policy mip,greedy,las,srtf --out results
        allocator simulate data/workloads/demo --policy mip --misjudged 0.3 --failures 0.01 --seed 7
        """,
        "measure.simulate:simulate",
        option(
            "workload WORKLOAD",
            "folder with workload.csv, pools.csv, rates.csv ...; or a snapshot",
            nargs="?",
        ),
        option(
            "--policy A,B",
            "policies, with commas or blanks between (default: mip,greedy)",
            words,
            nargs="+",
            action="extend",
        ),
        *OPTIONS,
        option(
            "--budget-average USD",
            "US dollars per hour on average, reserved GPUs not counted, instead of [longrun]",
            number(),
        ),
        option(
            "--budget-amount USD",
            "US dollars until --until, reserved GPUs not counted, instead of [longrun]",
            number(),
        ),
        seconds(
            "--budget-window TIME",
            "length of the windows of an average, instead of config.toml's",
            1.0,
        ),
        seconds("--until TIME", "stop at this time on the clock of submitted_s", infinite=True),
        group(
            "a world that is not as believed",
            *WORLD,
            option(
                "--node-failures RATE",
                "failures per node-hour of nodes.csv: all jobs of the node lose it",
                number(),
                dest="failures_per_node_hour",
            ),
            seconds(
                "--node-repair TIME", "seconds until a node that failed is up again (default: 3600)"
            ),
            option(
                "--placement",
                "a job of a plan for which there are no nodes gets them by moves of others, or"
                " another"
                " option; or it waits, for comparisons (default: repair)",
                choices=("repair", "wait"),
            ),
            option(
                "--revocations F",
                "spot GPUs are revoked at F times the pool's revocations_per_gpu_hour, 0: never"
                " (default: 1); pools in capacity.csv lose GPUs when that says so",
                number(),
            ),
            option(
                "--spot-batch N",
                "mean number of GPUs that one revocation takes in a region in full use (default:"
                " 1)",
                number(1),
            ),
            option(
                "--spot-burst F",
                "revocations are F times as frequent in a server's first hour (default: 1)",
                number(1),
            ),
            option(
                "--startup-spread SIGMA",
                "start-up of a server / startup_s of its pool: log-normal with this sigma, mean 1",
                number(),
            ),
            option(
                "--victims",
                "whose GPUs go when a pool shrinks (default: the last to start)",
                choices=("youngest", "random"),
            ),
            option(
                "--checkpoints",
                "every checkpoint_every_s, or at the best interval for the hazard (default: given)",
                choices=("given", "young-daly"),
            ),
        ),
        effort(math.inf, "each decision"),
        group(
            "output",
            option("--out DIR", "folder of the results"),
            TABLE,
            option(
                "--checkpoint TIME",
                "with --out: keep the state every TIME, so that the same command goes on after a"
                " kill"
                " (default: 30)",
                duration(),
                30.0,
            ),
            flag(
                "--keep-snapshots",
                "write every round as a snapshot with its plan: DIR/snapshots/POLICY/ROUND/",
            ),
        ),
    ),
    command(
        "assess",
        "your cluster's past, replayed: what would change",
        """
        HISTORY is a workload whose workload.csv says when jobs started and ended (recorded_start_s,
        recorded_end_s), as `allocator import` writes it. The site's own scheduler (policy easy, or
        slurm where there are nodes) is simulated and compared with the record; then this allocator
        gets the same jobs, rigid, or elastic as far as you say. Every figure comes with what it
        assumes. With --out, DIR/report.html has the table and a picture, DIR/assessment.json all
        numbers.""",
        """
        allocator assess data/examples/history
        allocator assess data/examples/history --elastic-share 0.5 --out answer
        """,
        "measure.assess:assess",
        option("history HISTORY", "folder with workload.csv, pools.csv ..."),
        option(
            "--elastic-share A,B",
            "shares of the jobs, from 0 to 1, that may use other sizes than they asked for",
            _shares,
            dest="shares",
        ),
        option(
            "--elastic-range LOW..HIGH",
            "their sizes, as multiples of the GPUs asked for (default: 0.5..2)",
            _range,
            dest="span",
        ),
        option(
            "--elastic-curves A,B",
            "their speed on k GPUs is k / (1 + c (k - 1)) for each c given, which makes the figures"
            " a range (default: 0.005,0.15, the best and the worst published)",
            many(number()),
            dest="curves",
        ),
        seconds(
            "--react TIME",
            "this allocator decides TIME after an arrival or a completion (default: 60)",
            1e-3,
        ),
        seconds("--every TIME", "time between its rounds (default: as the history says)", 1e-3),
        flag(
            "--no-progress",
            "jobs that are never stopped do not report to it what they have done",
            dest="progress",
            action="store_false",
        ),
        option("--seed N", "which jobs are elastic", parse_integer(0)),
        option("--out DIR", "folder of the page"),
    ),
    command(
        "generate",
        "a synthetic workload to simulate",
        "Write a workload folder. The same name, seed, load, jobs and GPUs give the same bytes.",
        """
        allocator generate                                               the generators, a line each
        allocator generate bursty --out traces/bursty --seed 1 --load 1.4
        allocator generate reproduction --out traces/paper --jobs 250
        """,
        "measure.generate:generate",
        option("name NAME", "a generator; without it they are listed", nargs="?"),
        option("--out DIR", "folder to write, new or empty", Path),
        option("--seed N", "seed of every draw (default: 0)", parse_integer(0), 0),
        option("--load X", "how busy; its unit is the generator's, see below", number()),
        option("--jobs N", "number of jobs", parse_integer(1)),
        option("--gpus N", "GPUs of the cluster, about", parse_integer(1, 10_000_000)),
        option(
            "--nodes-per-rack N",
            "put the GPUs on nodes (nodes.csv), N of them in a rack",
            parse_integer(1, 10_000_000),
        ),
        epilog="generators:\n" + list_generators(),
    ),
    IMPORT,
    command(
        "bench",
        "measure policies and solvers",
        "Measure policies and solvers.",
        """
        allocator bench policies --loads 0.3,0.36 --policies greedy,mip --seeds 10 --out results
        allocator bench solvers --sizes S,M --seeds 2 --limit 10 --out results
        allocator bench solvers report --out results
        """,
        below=(
            command(
                "policies",
                "simulate policies, compare with intervals",
                """
                Simulate every policy on every workload at every load with every seed, each task in
                a process of its own. Finished tasks are kept in OUT/tasks; what is there is not run
                again, what failed is tried again by the next call. Then results and paired
                differences from the baseline go to OUT/*.csv, OUT/report.html and, as a table, to
                standard output.""",
                """
                allocator bench policies --workloads bursty --loads 1 --jobs-per-workload 40 \
--policies las,mip --seeds 6 --out results
                allocator bench policies --workloads reproduction --loads 0.3,0.36 --policies \
greedy,mip --seeds 10 --out results
                allocator bench policies --workloads bursty,data/workloads/demo --loads 1 \
--policies las,srtf,mip --out results
                allocator bench policies --executor dask --scheduler tcp://head:8786 --seeds 10 \
--out results
                allocator bench policies report --out results           tables and report of what \
is there
                """,
                "measure.bench:policies",
                RUN_OR_REPORT,
                group(
                    "grid",
                    option(
                        "--workloads A,B",
                        "generators or folders (default: reproduction)",
                        words,
                        ("reproduction",),
                    ),
                    option(
                        "--loads X,Y",
                        "loads of the generators (default: each one's own); a folder is"
                        " simulated as it is",
                        many(number(1e-9)),
                    ),
                    option(
                        "--policies A,B",
                        "`least` is the least mean completion that any policy can have (default:"
                        " greedy,mip)",
                        words,
                        words("greedy,mip"),
                    ),
                    option(
                        "--seeds N",
                        "seeds 0 .. N-1 of generator and simulation; a folder in a world without"
                        " chance has "
                        "one (default: 3; significance needs 6 or more)",
                        parse_integer(1, 100_000),
                        3,
                    ),
                    option(
                        "--jobs-per-workload N", "default: the generator's own", parse_integer(1)
                    ),
                    option(
                        "--baseline P",
                        "what the others are compared with; run too (default: greedy)",
                        default="greedy",
                    ),
                ),
                group(
                    "decisions and rounds",
                    *OPTIONS,
                    option("--gap G", f"default: {GAP:g}", number()),
                    seconds(
                        "--time-limit TIME",
                        "seconds per decision (default: none); with one, results depend on the"
                        " machine",
                        infinite=True,
                    ),
                    option("--solver NAME", "of policy mip (default: auto)", default="auto"),
                ),
                group("a world that is not as believed", *WORLD),
                group(
                    "how",
                    option(
                        "--executor",
                        "default: processes",
                        default="processes",
                        choices=("processes", "dask"),
                    ),
                    option(
                        "--workers N",
                        "processes at a time (default: the cores)",
                        parse_integer(1, 1024),
                    ),
                    option("--scheduler ADDRESS", "of the Dask cluster: tcp://host:8786"),
                    option(
                        "--task-limit TIME",
                        "seconds after which a task is killed (default: none)",
                        duration(0.01, infinite=True),
                        math.inf,
                    ),
                    option(
                        "--out DIR",
                        "folder of the results (default: bench-policies)",
                        default="bench-policies",
                    ),
                ),
            ),
            command(
                "solvers",
                "time to proven gaps, memory",
                """
                Run every engine on every instance, each in a process of its own that is killed some
                time after the limit. What is in OUT/tasks is not run again. Rows go to OUT/runs.csv
                (and plans and bounds over time to OUT/trace.csv). Then, or with `report` alone, the
                tables go to standard output and OUT/tables.md; `report` draws the pictures too.""",
                """
                allocator bench solvers --sizes S,M,L --rules standard,all --seeds 3 --limit 20 \
--out results
                allocator bench solvers --files round.npz --engines auto,highs --out results
                allocator bench solvers report --out results            pictures and tables of \
what is there
                """,
                "measure.bench:solvers",
                RUN_OR_REPORT,
                option(
                    "--engines A,B",
                    "auto, highs, cpsat, pulp, marginal, greedy (default: these), a module",
                    words,
                    words("auto,highs,cpsat,pulp,marginal,greedy"),
                ),
                option(
                    "--sizes A,B",
                    "S, M, L, XL, XXL or JOBSxGPUSxTYPES (default: S,M,L; none with --files)",
                    words,
                ),
                option("--seeds N", "seeds 0 .. N-1 (default: 3)", parse_integer(1, 10_000), 3),
                option(
                    "--rules A,B",
                    "standard (20 tenants; default), tenants (100), all (every rule)",
                    words,
                    ("standard",),
                ),
                option(
                    "--rounds A,B",
                    "cold (default), warm: the next round, given what the engine found for this"
                    " one",
                    words,
                    ("cold",),
                ),
                option(
                    "--files FILE",
                    "models too: neutral .npz files, saved rounds of Sia, published knapsacks"
                    " and assignments",
                    default=(),
                    nargs="+",
                ),
                option("--limit TIME", "wall seconds per run (default: 60)", duration(0.01), 60.0),
                option("--gap G", "relative gap asked for (default: 1e-4)", number(), 1e-4),
                option(
                    "--threads N", "threads of a solver (default: 1)", parse_integer(1, 1024), 1
                ),
                option(
                    "--out DIR",
                    "folder of the results (default: bench-solvers)",
                    default="bench-solvers",
                ),
            ),
        ),
        title="what",
    ),
    command(
        "report",
        "page and pictures of results or of a queue",
        """
        Write a report as one HTML file, report.html, which needs neither a network nor scripts. Its
        pictures are also written as SVG files to the folder `pictures` beside it. The path of the
        report goes to standard output.

        DIR is the folder that `allocator simulate`, `allocator bench policies` or `allocator bench
        solvers` wrote with --out. The report of a queue (path or database URL) shows its overview,
        rounds, tenants and jobs, and is written to the folder QUEUE.report. If DIR is a plan on
        nodes, written by `allocator solve --out DIR`, the report shows which job has which GPUs;
        --snapshot names the snapshot of the plan.""",
        """
        allocator report results                         of `allocator simulate WORKLOAD --out \
results`
        allocator report results --out week-47.html      elsewhere
        allocator report cluster.db --last 200           the last 200 rounds of a queue
        """,
        "measure.report:report",
        folder_or_queue("DIR|QUEUE", "folder of the results"),
        option(
            "--out OUT",
            "the page NAME.html, or the folder for report.html (default: DIR, QUEUE.report)",
        ),
        option("--last N", "rounds of a queue to show (default: 1000)", parse_integer(1)),
        option(
            "--snapshot SNAPSHOT",
            "of a plan: the snapshot that was decided (default: in the folder of the plan)",
        ),
    ),
)
