"""Write data/examples: small inputs for the commands that need measurements or deadlines.

    python scripts/generators/generate_examples.py [--out data/examples]

Every file is generated from the formulas and numbers below with a fixed seed, and is the same byte
for byte each time.
"""

import argparse
import csv
import io
import json
import math
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from cases.markets import SAMPLES as MARKETS  # noqa: E402
from cases.submissions import CASES as SUBMISSIONS  # noqa: E402
from cases.traces import SAMPLES as TRACES  # noqa: E402

from allocator import SimulationOptions, simulate  # noqa: E402
from allocator.executors.example_job import steps_per_second  # noqa: E402
from allocator.io.workloads import parse_workload  # noqa: E402
from allocator.performance.fit.servers import fit_servers, list_rates  # noqa: E402
from allocator.performance.fit.transient import fit_hazard_of_places  # noqa: E402
from formulations.transient.parameter_servers import capped  # noqa: E402

SEED = 1
NOISE = 0.03  # standard deviation of the logarithm of a measurement
README = """\
# Generated examples

`allocator examples` lists these and all other shipped examples, says which commands use them, and \
copies them. All files here are
made by `scripts/generators/generate_examples.py`; no line was measured anywhere.

- `deadlines/`: a snapshot with five deadlines of which four can be kept.
- `announced/`: two workloads in which GPUs leave, and a price rises, at a time known before.
- `phases/`: a workload whose jobs scale better after 30 % of their work, with a budget for rented
  GPUs.
- `history/`: 40 jobs of three days on 16 GPUs, with the starts and ends that a backfill scheduler
  gave them which looks at its queue every five minutes.
- `best-effort/`: a workload of guaranteed jobs and best-effort jobs that share their GPUs.
- `modes/`: a snapshot with three jobs, each of which may keep its workers in step in three ways.
- `regions/`: a snapshot with two spot regions, in one of which young servers are taken back often.
  `lifetimes.csv` has 100 servers of each, watched for a day, `hazards.csv` what was fitted to it.
- `servers/`: a snapshot with two jobs whose GPUs may be workers or parameter servers, and
  `measured.csv` with the speeds of 1 to 16 workers of 12 steps a second. One, two and three servers
  carry 40, 75 and 100 steps together, 1 % noise.
- `variants/`: a snapshot with jobs that can compress what they exchange, or run out of core.
- `tuning/`: a snapshot with one job, whose speeds are believed with an error of 20 % and measured \
nowhere.
- `team/`: one machine with 8 GPUs for two tenants, and `more-jobs.csv` with training jobs that run
  on any machine. Their GPUs are simulated by the time that a step takes.
- `observations.csv`: steps of two models on 1 to 8 GPUs with three batches, 3 % noise.
- `lifetimes.csv`: 200 spot servers, 0.2 revocations an hour, half as many after six hours, \
watched for a day.
- `checkpoints.csv`: seconds = 2 + MB / 50, 3 % noise.
- `features.csv`: 1.4 GFLOPs / TFLOPS + 0.12 seconds a step of 12 models on three GPU types, 3 %
  noise; some were not measured.
- `starts.csv`: 20 starts: 40 s to boot, 25 s for the image, 10 s for the job, 3 % noise.
- `speeds.csv`: 1 to 8 workers of 5 steps a second, at most 28 together, 3 % noise.
- `traces/`, `markets/`: the smallest file of every format of job traces and spot markets.
- `submit/`: files with which jobs would be submitted: scripts of sbatch, manifests, a row of
  jobs.csv.
- `kubernetes/`: two nodes and three jobs, as `kubectl get nodes,pods,jobs -A -o json` writes them.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments and write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "examples")
    out = parser.parse_args(argv).out
    for name, text in files().items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text, encoding="utf-8")


VARIANTS = {
    "config.toml": """\
now_s = 0
interval_s = 300
objective = "completion"
""",
    "jobs.csv": """\
job_id,model,submitted_s,remaining_work,min_gpus,max_gpus,sizes
language-a,language,0,90000,4,4,4
language-b,language,0,60000,4,4,4
graph,graph,0,20000,1,4,
""",
    "pools.csv": """\
pool,gpu_type,gpus,memory_gb,link_gb_s
fast,A100,4,40,25
slow,A100,8,40,1.25
""",
    "rates.csv": """\
model,gpu_type,gpus,work_per_s,memory_gb,variant,compute_s,codec_s,volume_gb,ratio,efficiency
language,A100,4,40,30,,0.2,,0.5,,
language,A100,4,40,30,fp16,0.2,0.02,0.5,2,
language,A100,4,40,30,topk,0.2,0.06,0.5,20,0.95
graph,A100,1,9,32,out-of-core,,,,,
graph,A100,2,7,36,distributed,,,,,
graph,A100,4,8.5,36,distributed,,,,,
""",
}


BEST_EFFORT = {
    "config.toml": """\
interval_s = 120
restart_s = 20
objective = "completion"
""",
    "workload.csv": "".join(
        ["job_id,submitted_s,model,total_work,max_gpus,weight,preemptible,memory_gb,best_effort\n"]
        + [f"train-{i},{600 * i},train,1800,1,1,no,16,\n" for i in range(1, 13)]
        + [f"sweep-{i},{60 * i},sweep,600,1,0.1,,8,yes\n" for i in range(1, 41)]
    ),
    "pools.csv": """\
pool,gpu_type,gpus,memory_gb,sharing,isolation
shared,A100,4,40,best_effort,1.05
""",
    "rates.csv": """\
model,gpu_type,gpus,work_per_s,memory_gb
train,A100,1,1,16
sweep,A100,1,1,8
""",
    "sharing.csv": """\
model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b
train,sweep,A100,1,1.35,1.5
sweep,sweep,A100,1,1.3,1.3
""",
}


MODES = {
    "config.toml": """\
now_s = 0
interval_s = 300
objective = "completion"
""",
    "jobs.csv": """\
job_id,model,submitted_s,remaining_work,min_gpus,max_gpus,sizes,restart_s,checkpoint_s,modes
vision,m,0,60000,8,8,8,60,10,bulk|backup:1|replicated:4
speech,m,0,70000,8,8,8,60,10,bulk|backup:1|replicated:4
search,m,0,80000,8,8,8,60,10,bulk|backup:1|replicated:4
""",
    "pools.csv": """\
pool,gpu_type,gpus,market,price_per_gpu_hour,startup_s,revocations_per_gpu_hour,straggler_cv
even,A100,8,reserved,,,,
uneven,A100,8,reserved,,,,1
spot,A100,8,spot,1.2,120,0.5,
""",
    "rates.csv": """\
model,gpu_type,gpus,work_per_s
m,A100,8,8
""",
}


def phases() -> dict[str, str]:
    """Return a workload of one model with two phases, on a long-run budget."""
    speeds = {"bert": (1, 1.6, 2.2, 2.6), "bert@0.3": (1, 1.9, 3.5, 6.2)}
    rates = [
        (model, "A100", k, rate)
        for model, row in speeds.items()
        for k, rate in zip((1, 2, 4, 8), row, strict=True)
    ]
    jobs = [(f"bert-{i:02d}", "bert", 1800 * i, 7200 + 600 * (i % 5), 8) for i in range(16)]
    budget = "interval_s = 300\nrestart_s = 30\n\n[rental]\naverage_per_hour = 12\nevery_s = 600\n"
    return {
        "config.toml": budget,
        "pools.csv": table(
            "pool,gpu_type,gpus,gpus_per_node,market,price_per_gpu_hour",
            [("rented", "A100", 64, 8, "on_demand", 2)],
        ),
        "rates.csv": table("model,gpu_type,gpus,work_per_s", rates),
        "workload.csv": table("job_id,model,submitted_s,total_work,max_gpus", jobs),
    }


def features(chance: random.Random) -> Iterator[tuple[object, ...]]:
    """Yield rows of models on three GPU types, of which one in four was not measured."""
    for i in range(12):
        gflops = 0.2 * 1.6**i
        for k, (kind, tflops) in enumerate({"K80": 4.1, "P100": 9.3, "V100": 14.0}.items()):
            speed = math.exp(NOISE * chance.gauss(0, 1)) / (1.4 * gflops / tflops + 0.12)
            is_open = 0 < i < 11 and (i + k) % 4 == 0
            yield f"net-{i}", kind, "" if is_open else f"{speed:.5g}", f"{gflops:.4g}", tflops


def regions(chance: random.Random) -> dict[str, str]:
    """Return a snapshot of two spot regions, and the lives of servers there."""
    hazards = {"east": (0.6, 0.02), "west": (0.1, 0.1)}  # per hour before and after the first hour
    lives = []
    for region, (early, late) in hazards.items():
        for _ in range(100):
            e = chance.expovariate(1)
            age = e / early if e < early else 1 + (e - early) / late
            lives.append((f"{min(age, 24):.3f}", "yes" if age < 24 else "no", region, "V100"))
    hours, revoked, place = zip(
        *((float(h), r == "yes", (p,)) for h, r, p, _ in lives), strict=True
    )
    fits = fit_hazard_of_places(hours, revoked, place, (0.0, 1.0))
    found = [
        (place, "V100", f"{a:g}", f"{h:.5g}")
        for (place,), fit in fits.items()
        for a, h in zip(fit.hazard.start_h, fit.hazard.per_hour, strict=True)
    ]
    pools = [(f"{name}-spot", "V100", 8, "spot", 0.9, name, 120) for name in hazards]
    texts = ["|".join(f"{a}:{h}" for p, _, a, h in found if p == name) for name in hazards]
    return {
        "config.toml": 'now_s = 0\ninterval_s = 300\nobjective = "completion"\n',
        "jobs.csv": """\
job_id,model,submitted_s,remaining_work,min_gpus,max_gpus,sizes,restart_s,checkpoint_s
short,m,0,6000,8,8,8,60,60
long,m,0,240000,8,8,8,60,60
""",
        "pools.csv": table(
            "pool,gpu_type,gpus,market,price_per_gpu_hour,region,startup_s,hazard_by_age",
            [(*row, text) for row, text in zip(pools, texts, strict=True)],
        ),
        "rates.csv": "model,gpu_type,gpus,work_per_s\nm,V100,8,8\n",
        "lifetimes.csv": table("hours,revoked,region,gpu_type", lives),
        "hazards.csv": table("region,gpu_type,from_h,per_hour", found),
    }


def servers(chance: random.Random) -> dict[str, str]:
    """Return a snapshot of jobs with parameter servers, and the measurements of their speeds."""
    measured = [
        ("resnet", "P100", m, w, float(f"{capped(12.0 * w, cap, 8) * chance.gauss(1, 0.01):.5g}"))
        for m, cap in ((1, 40.0), (2, 75.0), (3, 100.0))
        for w in (1, 2, 4, 8, 16)
    ]
    names, kinds, numbers, workers, speeds = zip(*measured, strict=True)
    counts = (np.array(numbers), np.array(workers), np.array(speeds))
    return {
        "config.toml": 'now_s = 0\ninterval_s = 300\nobjective = "completion"\n',
        "jobs.csv": """\
job_id,model,submitted_s,remaining_work,min_gpus,max_gpus,sizes
small,resnet,0,64000,4,4,4
large,resnet,0,256000,4,16,4|8|16
""",
        "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\np100,P100,20,1.5\n",
        "rates.csv": table(
            "model,gpu_type,gpus,work_per_s,variant",
            [
                (*row[:3], f"{row[3]:.6g}", row[4])
                for row in list_rates(fit_servers(names, kinds, *counts), (4, 8, 16))
            ],
        ),
        "measured.csv": table("model,gpu_type,servers,workers,work_per_s", measured),
    }


def files() -> dict[str, str]:
    """Return the text of each file below data/examples, by name."""
    chance = random.Random(SEED)

    def noisy(value: float) -> str:
        return f"{value * math.exp(NOISE * chance.gauss(0, 1)):.5g}"

    observations = [
        (model, "A100", k, batch, noisy(batch / step(model, k, batch)))
        for model in STEPS
        for k in (1, 2, 4, 8)
        for batch in (64, 128, 256)
        if batch / k <= 128
    ]
    lifetimes = [lifetime(chance) for _ in range(200)]
    return {
        "README.md": README,
        "observations.csv": table("model,gpu_type,gpus,batch_size,work_per_s", observations),
        "lifetimes.csv": table("hours,revoked", lifetimes),
        **{f"regions/{name}": text for name, text in regions(random.Random(SEED)).items()},
        "checkpoints.csv": table(
            "x,y", [(mb, noisy(2 + mb / 50)) for mb in (20, 50, 100, 200, 400, 800)]
        ),
        "features.csv": table(
            "model,gpu_type,work_per_s,model_gflops,gpu_tflops", list(features(random.Random(SEED)))
        ),
        "starts.csv": table(
            "boot,image,job", [(noisy(40), noisy(25), noisy(10)) for _ in range(20)]
        ),
        **{f"servers/{name}": text for name, text in servers(random.Random(SEED)).items()},
        "speeds.csv": table(
            "workers,work_per_s", [(n, noisy(min(5 * n, 28))) for n in range(1, 9)]
        ),
        **{f"history/{name}": text for name, text in history(random.Random(SEED)).items()},
        **{f"phases/{name}": text for name, text in phases().items()},
        **{f"best-effort/{name}": text for name, text in BEST_EFFORT.items()},
        **{f"modes/{name}": text for name, text in MODES.items()},
        **{f"variants/{name}": text for name, text in VARIANTS.items()},
        **{f"announced/{name}": text for name, text in ANNOUNCED.items()},
        **{f"tuning/{name}": text for name, text in TUNING.items()},
        **{f"deadlines/{name}": text for name, text in DEADLINES.items()},
        **{f"team/{name}": text for name, text in team().items()},
        **{f"markets/{name}": text for name, text in MARKETS.values()},
        **traces(),
        **{f"submit/{name}": text for name, (text, _) in SUBMISSIONS.items()},
        "kubernetes/core.json": json.dumps(kubernetes(), indent=1) + "\n",
    }


def history(chance: random.Random) -> dict[str, str]:
    """Return 40 jobs of three days, with the times that a backfill scheduler gave them."""
    at, rows = 0, []
    for i in range(40):
        gpus, minutes = chance.choice((1, 2, 4, 4, 8)), 10 * round(24 * chance.lognormvariate(0, 1))
        rows.append((f"job-{i + 1:02d}", "train", at, 60 * gpus * minutes, *[gpus] * 3))
        at += 60 * round(chance.expovariate(1 / 110))
    head = "job_id,model,submitted_s,total_work,requested_gpus,min_gpus,max_gpus"
    files = {
        "config.toml": "interval_s = 7200\nrestart_s = 60\n",
        "pools.csv": "pool,gpu_type,gpus\na100,A100,16\n",
        "rates.csv": table(
            "model,gpu_type,gpus,work_per_s", [("train", "A100", k, k) for k in (1, 2, 4, 8)]
        ),
        "workload.csv": table(head, rows),
    }
    workload = parse_workload("history", {name: text.encode() for name, text in files.items()})
    # it looks at its queue every five minutes
    options = SimulationOptions(react_s=300, prove_every=0)
    jobs = simulate(workload, policy="easy", options=options).tables["jobs"]
    times = zip(jobs["started_s"], jobs["finished_s"], strict=True)
    ended = [(*row, f"{a:.10g}", f"{b:.10g}") for row, (a, b) in zip(rows, times, strict=True)]
    return files | {"workload.csv": table(f"{head},recorded_start_s,recorded_end_s", ended)}


def traces() -> dict[str, str]:
    """Return the files of the traces, by name."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for build in TRACES.values():
            build(root / "traces")
        return {
            path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }


def team() -> dict[str, str]:
    """Return a snapshot without jobs, and jobs for its queue."""
    rates = [
        (model, "simulated", gpus, f"{steps_per_second(gpus, RATE, overhead):.6g}")
        for model, overhead in OVERHEADS.items()
        for gpus in (1, 2, 4, 8)
    ]
    jobs = [
        (name, tenant, model, steps, 1, most, command(model, steps))
        for name, tenant, model, steps, most in TEAM_JOBS
    ]
    return {
        "config.toml": "now_s = 0\ninterval_s = 10\nrestart_s = 1\nbudget_per_hour = 16\n",
        "jobs.csv": "job_id,model,submitted_s,remaining_work,max_gpus,tenant\n",
        "pools.csv": table(
            "pool,gpu_type,gpus,market,price_per_gpu_hour",
            [("machine", "simulated", 8, "on_demand", 2)],
        ),
        "tenants.csv": table(
            "tenant,parent,max_gpus,guaranteed_gpus",
            [("research", "", "", ""), *((name, "research", 6, 2) for name in TENANTS)],
        ),
        "rates.csv": table("model,gpu_type,gpus,work_per_s", rates),
        "more-jobs.csv": table("job_id,tenant,model,total_work,min_gpus,max_gpus,command", jobs),
    }


def command(model: str, steps: int) -> str:
    """Return the command of a small training job that takes a while."""
    return (
        f"python -m allocator.executors.example_job --steps {steps} --rate {RATE:g}"
        f" --overhead {OVERHEADS[model]:g}"
    )


def kubernetes() -> dict[str, Any]:
    """Return two nodes, a job that runs on one of them, and two that wait."""
    node = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "512Gi"}
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"nvidia.com/gpu.product": "A100", "kubernetes.io/hostname": name},
                "creationTimestamp": "2026-01-05T08:00:00Z",
            },
            "status": {
                "allocatable": node,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for name in ("n1", "n2")
    ]
    for name, gpus, least, most in (("train", 4, 1, 8), ("tune", 2, 1, 4), ("wide", 8, 8, 8)):
        container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        items.append(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": name,
                    "namespace": "training",
                    "uid": f"uid-{name}",
                    "creationTimestamp": "2026-01-05T09:00:00Z",
                    "annotations": {
                        "allocator.example/managed": "true",
                        "allocator.example/min-gpus": str(least),
                        "allocator.example/max-gpus": str(most),
                    },
                },
                "spec": {
                    "suspend": True,
                    "parallelism": 1,
                    "completions": 1,
                    "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
                },
                "status": {},
            }
        )
    return {"apiVersion": "v1", "kind": "List", "items": items}


# seconds per sample, per GPU, per step
STEPS = {"bert": (0.004, 0.010, 0.05), "resnet": (0.002, 0.004, 0.03)}


def step(model: str, gpus: int, batch: int) -> float:
    """Return the seconds of a step."""
    compute, sync, constant = STEPS[model]
    return compute * batch / gpus + sync * gpus + constant


def lifetime(chance: random.Random) -> tuple[str, int]:
    """Return the hours of a spot server, and whether it was revoked within a day."""
    hours = chance.expovariate(0.2)
    if hours > 6:
        hours = 6 + chance.expovariate(0.1)
    return (f"{min(hours, 24.0):.3f}", int(hours < 24))


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV text."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([head.split(","), *rows])
    return out.getvalue()


ANNOUNCED = {
    "capacity/capacity.csv": """\
at_s,pool,gpus
900,lent,0
""",
    "capacity/config.toml": """\
interval_s = 300
restart_s = 600
objective = "completion"
""",
    "capacity/pools.csv": """\
pool,gpu_type,gpus
lent,A100,8
own,V100,8
""",
    "capacity/rates.csv": """\
model,gpu_type,gpus,work_per_s
m,A100,8,12
m,V100,8,8
""",
    "capacity/workload.csv": """\
job_id,submitted_s,model,total_work,min_gpus,max_gpus,sizes
long,0,m,28800,8,8,8
""",
    "price/config.toml": """\
interval_s = 300
restart_s = 30
objective = "completion"
dollar_price = 0.2
""",
    "price/pools.csv": """\
pool,gpu_type,gpus,market,price_per_gpu_hour
cloud,A100,8,on_demand,2
""",
    "price/prices.csv": """\
at_s,pool,price_per_gpu_hour
900,cloud,20
""",
    "price/rates.csv": """\
model,gpu_type,gpus,work_per_s
m,A100,4,4
m,A100,8,6.4
""",
    "price/workload.csv": """\
job_id,submitted_s,model,total_work,min_gpus,max_gpus,sizes
a,0,m,5500,4,8,4|8
""",
}
TUNING = {
    "config.toml": "now_s = 0\ninterval_s = 300\n",
    "jobs.csv": (
        "job_id,model,submitted_s,remaining_work,min_gpus,max_gpus,memory_gb\n"
        "tune,bert,0,20000000,1,8,20\n"
    ),
    "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\na100,A100,8,2\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s,batch_size\n",
    "models.csv": (
        'model,gpu_type,kind,parameters\nbert,A100,goodput,"{""alpha_c"": 0.05, ""beta_c"": 0.004,'
        ' ""alpha_r"": 0.02, ""beta_r"": 0.005, ""alpha_n"": 0.05, ""beta_n"": 0.01, ""gamma"":'
        ' 2.0, ""noise_scale"": 400, ""batch_0"": 64, ""max_batch"": 1024, ""min_local"": 8,'
        ' ""max_local"": 128, ""gpus_per_node"": 8, ""min_gpus"": 1, ""max_gpus"": 8, ""error"":'
        ' 0.2}"\n'
    ),
}
RATE = 20.0  # steps a second on one GPU
OVERHEADS = {"resnet": 0.03, "bert": 0.15}  # of each further GPU
TENANTS = ("vision", "language")
# name, tenant, model, steps, most GPUs
TEAM_JOBS = (
    ("resnet-1", "vision", "resnet", 30000, 8),
    ("resnet-2", "vision", "resnet", 20000, 4),
    ("resnet-3", "vision", "resnet", 10000, 2),
    ("bert-1", "language", "bert", 25000, 8),
    ("bert-2", "language", "bert", 15000, 4),
    ("bert-3", "language", "bert", 10000, 2),
)
DEADLINES = {
    "config.toml": "now_s = 0\ninterval_s = 300\n",
    "jobs.csv": (
        "job_id,model,submitted_s,remaining_work,min_gpus,max_gpus,deadline_s\n"
        "report,m,0,7200,1,1,10800\nnightly,m,0,28800,1,4,14400\nweekly,m,0,57600,1,4,43200\n"
        "demo-day,m,0,14400,1,2,14400\nmonster,m,0,400000,1,4,36000\nsomeday,m,0,50000,1,4,\n"
    ),
    "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\na100,A100,8,2\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A100,1,1\nm,A100,2,1.9\nm,A100,4,3.6\n",
}

if __name__ == "__main__":
    main()
