"""CPU seconds and calls of slurmctld of one round on a real Slurm: look, plan, commands.

    python scripts/benchmarks/slurm/slurm_round.py --jobs 1000

It needs root and the packages slurmctld, slurmd and slurm-client. Some jobs run, all others wait;
every fourth of them is elastic. CPU seconds are those of the commands `allocator observe`, `solve`
and `plan` with all their children, Python's start included, and then those of the same three steps
in one process that has started already.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "processes")]

from slurm_cluster import FakeNodes, SlurmCluster  # noqa: E402

from allocator.cli.main import run  # noqa: E402

NODES = (FakeNodes("a100", "n", 8, "a100", 8), FakeNodes("v100", "v", 8, "v100", 8))
RATES = "model,gpu_type,gpus,work_per_s\n" + "".join(
    f"bert,{kind},{gpus},{speed * gpus**0.9:.3f}\n"
    for kind, speed in (("a100", 2.0), ("v100", 1.0))
    for gpus in (1, 2, 4, 8)
)
SAID = {"model": "bert", "min_gpus": 1, "max_gpus": 8, "total_work": 90000}
RPC = re.compile(r"^\s+(REQUEST_\w+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)


def main() -> None:
    """Print a line for each step, and the calls of slurmctld."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    asked = parser.parse_args()
    with SlurmCluster(NODES) as slurm, tempfile.TemporaryDirectory() as folder:
        submit(slurm, asked.jobs)
        os.environ.update(slurm.environment)
        rates = Path(folder, "rates.csv")
        rates.write_text(RATES)
        out = f"{folder}/look"
        steps = (
            ("observe", "slurm", "--out", out, "--add", str(rates)),
            ("solve", out, "--out", f"{out}/plan", "--format", "json"),
            ("plan", out, "--as", "slurm", "--out", f"{out}/plan"),
        )
        states = list(slurm.states().values())
        print(
            f"{len(states)} jobs, {states.count('RUNNING')} run, on {len(slurm.node_names)} nodes"
        )
        measure("commands", steps, lambda words: command(*words), resource.RUSAGE_CHILDREN)
        slurm.run("sdiag", "-r")
        measure("in one process", steps, in_process, resource.RUSAGE_SELF)
        calls = dict(RPC.findall(slurm.run("sdiag")))
        calls.pop("REQUEST_STATS_INFO", None)
        print(f"calls of slurmctld in a round: {calls}")
        script = Path(out, "plan", "slurm.sh").read_text()
        print(f"commands of the plan: {len(re.findall('^(?:change|scontrol) ', script, re.M))}")


def submit(slurm: SlurmCluster, jobs: int) -> None:
    """Submit the jobs, and wait until some run."""
    declared = f"#SBATCH --comment={json.dumps({'allocator': SAID}, separators=(',', ':'))}"
    for i in range(jobs):
        options = [f"--gres=gpu:{1 << i % 4}", f"-p{'av'[i % 2]}100", "-t60", f"-Jjob{i}"]
        slurm.run(
            *("sbatch", "--parsable", "--output=/dev/null", *options),
            *((declared.removeprefix("#SBATCH "),) if i % 4 == 0 else ()),
            *("--wrap", "sleep 3600"),
        )
    time.sleep(5)


def command(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "allocator", *words], cwd=ROOT, check=True, capture_output=True
    )


def in_process(words: tuple[str, ...]) -> None:
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    with open(os.devnull, "w", encoding="utf-8") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)
        try:
            assert run(words) == 0
        finally:
            sys.stdout.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)


def measure(
    title: str,
    steps: tuple[tuple[str, ...], ...],
    call: Callable[[tuple[str, ...]], None],
    who: int,
) -> None:
    """Print the CPU seconds of each step, and of Slurm's own commands in it."""
    total = 0.0
    for words in steps:
        before = cpu(who), cpu(resource.RUSAGE_CHILDREN)
        call(words)
        spent, children = cpu(who) - before[0], cpu(resource.RUSAGE_CHILDREN) - before[1]
        spent += children if who == resource.RUSAGE_SELF else 0.0
        total += spent
        print(f"{title}: {words[0]} {spent:.2f} s CPU")
    print(f"{title}: {total:.2f} s CPU in all")


def cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
