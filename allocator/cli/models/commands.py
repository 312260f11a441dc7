"""The commands that fit and use models of speeds, prices and revocations; import of traces."""

import math
from pathlib import Path

from allocator.cli.parsing import (
    HOUR_S,
    SNAPSHOT,
    TABLE_OR_CSV,
    Command,
    command,
    duration,
    flag,
    formats,
    group,
    many,
    number,
    option,
    pair,
    parse_integer,
    repeated,
    words,
)
from allocator.io.formats import FORMATS, MARKETS, FormatEntry

MODELS = (
    command(
        "configure",
        "time and cost of one job over pool, size and batch",
        """
        What it takes to run one job to its end, alone: hours and dollars of every pool, size and
        batch that fits the memory; the knee, the fastest within --cost, the cheapest within
        --deadline. The table shows what nothing beats in both; csv and json have all.""",
        """
        allocator configure data/snapshots/demo pretrain --deadline 12 --cost 90
        allocator configure data/snapshots/demo pretrain --out choices      configure.csv and \
configure.svg
        allocator configure data/examples/tuning tune --profile             what to measure next
        """,
        "models.configure:configure",
        SNAPSHOT,
        option("job JOB", "job_id of the job"),
        option("--cost USD", "most dollars to the end", number(), math.inf),
        option(
            "--deadline TIME",
            "hours from now it may take (default: deadline_s of the job or of those after it, if"
            " any)",
            duration(unit_s=HOUR_S),
        ),
        flag("--profile", "the few configurations to measure next, instead"),
        option("--out DIR", "write configure.csv and configure.svg there"),
        TABLE_OR_CSV,
    ),
    command(
        "fit",
        "speed models from observed speeds",
        """
        For each model and GPU type the form of speed curve that predicts best what it has not seen
        (each size is left out in turn), fitted to everything: a row of models.csv, its error, the
        sizes it holds for. docs/speed-models.md has the formulas. Sources: rates = a CSV like
        rates.csv (default); sia, gavel, mlperf = published profiles.""",
        """
        allocator fit data/snapshots/medium/rates.csv
        allocator fit data/examples/observations.csv --out fitted      models.csv for a snapshot, \
fit.csv, fit.svg
        allocator fit profiles --from sia --forms goodput --format csv
        """,
        "models.fit:fit",
        option("source OBSERVATIONS", "file, or folder of profiles, of observed speeds"),
        option(
            "--from",
            "what the source is (default: rates)",
            default="rates",
            dest="form",
            choices=("rates", "sia", "gavel", "mlperf"),
        ),
        option(
            "--forms A,B",
            'only these: overhead, power, capped, iteration, "iteration over batches", goodput',
            words,
            (),
        ),
        option(
            "--reach F",
            "offer sizes up to F times the largest measured one (default: 1)",
            number(1.0),
            1.0,
        ),
        flag(
            "--fill",
            "also guess the pairs of model and GPU type that were never measured, from the others",
        ),
        option("--out DIR", "write models.csv, fit.csv and fit.svg there"),
        formats("table", "json", "csv", about="csv is models.csv"),
    ),
    command(
        "spot",
        "one job on servers that may be taken back: time, cost, choice",
        """
        One job on each of several clusters: expected time, dollars, servers lost and share of
        useful time, and which cluster is cheapest, fastest, fastest for at most --cost dollars,
        cheapest within --deadline seconds (docs/spot-and-rental.md).""",
        """
        allocator spot plan data/spot/resnet32.csv --work 64000 --cost 1.2    time and cost per \
cluster, and which to take
        allocator spot fit hazard data/examples/lifetimes.csv --ages 0,6      what measurements say
        """,
        below=(
            command(
                "plan",
                "expected time and cost per cluster, and which to take",
                """
                One job on each of several clusters: expected time, dollars, servers lost and share
                of useful time, and which cluster is cheapest, fastest, fastest for at most --cost
                dollars, cheapest within --deadline seconds (docs/spot-and-rental.md).""",
                """
                allocator spot plan data/spot/resnet32.csv --work 64000 --cost 1.2 --deadline 3600
                allocator spot plan data/spot/resnet32.csv --work 64000 --quality 0.91 --out chosen
                """,
                "models.spot:plan",
                option(
                    "clusters CLUSTERS.csv",
                    "a row per cluster and sort of server; its columns: docs/spot-and-rental.md",
                ),
                option(
                    "--work W", "work of the job, as in work_per_s", number(1e-9), required=True
                ),
                option("--cost USD", "name the fastest for at most so many dollars", number()),
                option("--deadline TIME", "name the cheapest within so many seconds", duration()),
                option("--quality Q", "only clusters whose `quality` is at least this", number()),
                option("--out DIR", "write plan.json, plan.csv and time-against-cost.svg", Path),
                TABLE_OR_CSV,
            ),
            command(
                "fit",
                "lines, hazards, start-up times, caps from measurements",
                """
                Fit one of: line (columns x, y), hazard (hours, revoked; region, gpu_type), startup
                (seconds per phase, any names), cap (workers, work_per_s).""",
                """
                allocator spot fit line data/examples/checkpoints.csv                 x size in \
MB, y seconds
                allocator spot fit hazard data/examples/lifetimes.csv --ages 0,6      hours, revoked
                allocator spot fit startup data/examples/starts.csv                   a column of \
seconds per phase
                """,
                "models.spot:fit",
                option("kind", choices=("line", "hazard", "startup", "cap")),
                option("file FILE.csv", "the measurements"),
                option(
                    "--ages H,H",
                    "hours at which pieces of the hazard begin (default: 0, one piece)",
                    many(number()),
                    (0.0,),
                ),
                TABLE_OR_CSV,
            ),
            command(
                "servers",
                "speeds with one or more parameter servers, as rows of rates.csv",
                """
                Fit the speed of each measured number of parameter servers (columns model, gpu_type,
                servers, workers, work_per_s) and write a row of rates.csv for each size: servers
                and workers have a GPU each. A round then takes the fastest row of each size.""",
                """
                allocator spot servers data/examples/servers/measured.csv
                allocator spot servers data/examples/servers/measured.csv --sizes 2,4,8 --format csv
                """,
                "models.spot:servers",
                option("file FILE.csv", "the measurements"),
                option(
                    "--sizes K,K",
                    "numbers of GPUs, servers included (default: powers of two, as far as"
                    " measured)",
                    many(parse_integer(1)),
                    (),
                ),
                formats("table", "json", "csv", about="csv is rates.csv"),
            ),
            command(
                "hazards",
                "pools.csv with the revocations of a table by region, type and age",
                """
                Write pools.csv with hazard_by_age of all spot pools whose region and GPU type the
                table has (columns region, gpu_type, from_h, per_hour, as `spot fit hazard` writes
                them; an empty cell holds for all).""",
                """
                allocator spot hazards data/examples/regions/hazards.csv --pools \
data/examples/regions/pools.csv
                """,
                "models.spot:hazards",
                option("file FILE.csv", "the table of hazards"),
                option("--pools POOLS.csv", "the pools", required=True),
                formats("csv", "json", about="csv is pools.csv"),
            ),
            command(
                "features",
                "speeds that were not measured, from features of model and GPU",
                """
                Predict the empty work_per_s of a table from its other rows (columns model,
                gpu_type, gpus, work_per_s, and any features above 0, such as the GFLOPs of the
                model and the TFLOPS of the GPU). docs/spot-and-rental.md has the regression and its
                errors.""",
                """
                allocator spot features data/examples/features.csv
                allocator spot features data/examples/features.csv --sure 0.95 --format csv
                """,
                "models.spot:features",
                option("file FILE.csv", "the table"),
                option(
                    "--sure P",
                    "lower a speed until it is not too high with this probability (default: 0.9)",
                    number(0.0),
                    0.9,
                ),
                formats("table", "json", "csv", about="csv is rates.csv"),
            ),
        ),
    ),
    command(
        "rent",
        "widths and price of GPUs rented on a long-run budget",
        """
        GPUs are rented when jobs arrive and given back when they end: nobody queues, and every
        class of jobs has a width of its own. The widths here give the least mean response time of
        all policies that rent as much on average (docs/spot-and-rental.md). CLASSES.csv has a row
        per class: class_id, arrivals_per_hour, mean_work_gpu_hours, kind (amdahl, power, table),
        parameter or points, and perhaps weight, gpu_type, relative_speed, max_gpus.""",
        """
        allocator rent data/rental/example.csv --budget 2                         2 GPUs in the \
long-run mean
        allocator rent data/rental/classes.csv --pools data/rental/pools.csv --budget 50 --dollars \
--whole --out rented
        allocator rent --from-workload data/workloads/demo > classes.csv         classes estimated \
from jobs
        """,
        "models.rent:rent",
        option("classes CLASSES.csv", "the classes of jobs", nargs="?"),
        option(
            "--budget B",
            "GPUs, or dollars per hour, in the long-run mean; "
            "without it, the estimated classes are printed",
            number(),
        ),
        flag("--dollars", "the budget is in US dollars per hour, not in GPUs"),
        option(
            "--pools POOLS.csv",
            "pool, gpu_type and price_per_gpu_hour of what can be rented; as in a snapshot",
        ),
        flag("--whole", "whole GPUs only: at most one class is split between two options"),
        flag("--curve", "print what other budgets buy, too"),
        group(
            "classes estimated from jobs, one per model",
            option("--from-workload FOLDER", "of a workload, instead of CLASSES.csv"),
            option("--from-queue QUEUE", "of a queue: its jobs done and under way"),
            option(
                "--hours TIME",
                "hours in which the jobs were submitted (default: from the gaps between them)",
                duration(1e-9, unit_s=HOUR_S),
            ),
        ),
        group(
            "output",
            option("--out DIR", "write rent.json, classes.csv, curve.csv and curve.svg", Path),
            formats(
                "table",
                "json",
                "csv",
                about="csv: a row per class and option, with --curve per budget",
            ),
        ),
    ),
)


def _gpus(text: str) -> int | dict[str, int]:
    whole = parse_integer(1, 10_000_000)
    if "=" not in text:
        return whole(text)
    pairs = [part.rpartition("=") for part in text.split(",")]
    return {name.strip(): whole(n) for name, _, n in pairs}


OUT = option("--out DIR", "folder to write", required=True)
HOURS = option(
    "--hours TIME",
    "length of the window in hours, or as 90min (default: to the end)",
    duration(1e-6, unit_s=HOUR_S),
)
JOBS = (
    group(
        "which jobs",
        option(
            "--from T",
            "begin of the window: seconds on the trace's clock, or a date (default: its first"
            " second)",
            dest="start",
        ),
        HOURS,
        option(
            "--max-hours TIME",
            "cut longer jobs to these hours, or to 90min (default: none; philly: 168; inf = none)",
            duration(1e-6, infinite=True, unit_s=HOUR_S),
        ),
        option("--jobs N", "only the first N jobs of the window", parse_integer(1)),
        option(
            "--load X",
            "thin or clone jobs at random until GPU-seconds asked for = X times those there are",
            number(1e-9),
        ),
        option("--seed N", "of everything drawn (default: 0)", parse_integer(0)),
    ),
    group(
        "cluster and sizes",
        option(
            "--gpus N",
            "GPUs of the cluster (default: the format's own); slurm: also a100=128,v100=64",
            _gpus,
        ),
        option(
            "--gpus-per-node N",
            "default: 8, or the format's own",
            parse_integer(1, 10_000),
        ),
        option(
            "--max-factor F",
            "max_gpus = F times the GPUs asked for, min_gpus = 1 (default: 4 for gavel, inf for"
            " sia; the other formats say nothing of other sizes, and jobs run as asked for)",
            number(1, infinite=True),
        ),
        option(
            "--max-gpus N",
            "no job grows beyond N GPUs unless it asks for more (default: 64)",
            parse_integer(1, 10_000_000),
            dest="most_gpus",
        ),
        flag("--rigid", "every job runs at the size asked for, or not at all"),
        flag(
            "--rule-sizes",
            "only powers of two in a node and whole nodes, even if a job asks for another size",
        ),
        option(
            "--curves C,C",
            "overheads per further GPU to draw from, for traces without speeds and --max-factor"
            " (default: 0.005,0.01,0.02,0.04,0.08,0.15)",
            many(number()),
        ),
    ),
)


def _import_jobs(name: str, entry: FormatEntry) -> Command:
    extras = [
        repeated(f"--{e.name} {e.metavar}", e.help, dest=f"extra_{e.name}") for e in entry.extras
    ]
    return command(
        name,
        entry.help,
        f"{entry.help}.",
        f"allocator import {name} {entry.source} --out DIR\n"
        f"allocator import {name} {entry.source} --hours 24 --load 1.2 --seed 7 --out DIR",
        "models.imports:import_jobs",
        option(f"source {entry.source}", "file of the trace, plain or gzip"),
        OUT,
        *([group("this format", *extras)] if extras else []),
        *JOBS,
        defaults={"format_name": name, "extras": [e.name for e in entry.extras]},
    )


def _import_market(name: str, entry: FormatEntry) -> Command:
    return command(
        name,
        entry.help,
        f"{entry.help}.",
        f"allocator import {name} {entry.source} --out DIR\nallocator import {name}"
        f" {entry.source} --onto WORKLOAD --pool ZONE=a100-spot --hours 48 --out DIR",
        "models.imports:import_market",
        option(f"source {entry.source}", "files, plain or gzip", nargs="+"),
        OUT,
        option(
            "--onto WORKLOAD",
            "write this workload with the market's changes for the pools named by --pool;"
            " without it pools.csv, capacity.csv and prices.csv alone",
        ),
        repeated(
            "--pool ZONE=POOL",
            "the market's pool ZONE becomes the workload's POOL; may be given more than once",
            pair("ZONE=POOL"),
        ),
        option(
            "--from TIME",
            "begin of the window, seconds after the first moment of the sources (default: 0)",
            duration(),
            0.0,
            dest="start",
        ),
        HOURS,
        option("--gpus N", "GPUs of one machine", parse_integer(1, 10_000)),
        option(
            "--on-demand USD",
            "price on demand per GPU-hour that spot prices should be below",
            number(1e-9),
        ),
        defaults={"format_name": name},
    )


ANY = FormatEntry("", "FILE", "whichever of the formats below the file is")
IMPORT = command(
    "import",
    "a published trace as a workload",
    """
    Turn a published trace into a workload folder (workload.csv, pools.csv, rates.csv). `auto`
    recognises the format. What was read, dropped and why goes to standard error. docs/traces.md
    describes every format.""",
    """
    allocator import philly philly.csv.gz --gpus 1000 --from 2017-10-09 --hours 24 --load 1.0 \
--out day
    allocator import sia workloads/philly/workload-1.csv --out sia-1
    allocator import slurm history.txt --gpus a100=128,v100=64 --out mine
    allocator import csv jobs.csv --map submitted_s=submit_time --map gpus=gpu_num --gpus 64 --out \
mine
    """,
    below=(
        *(_import_jobs(name, entry) for name, entry in {"auto": ANY, **FORMATS}.items()),
        *(_import_market(name, entry) for name, entry in MARKETS.items()),
    ),
    title="formats",
)
