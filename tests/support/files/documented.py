"""The commands that the documentation and the help show, and what runs instead of those that cannot
run as they are.

A list here may hold nothing that is not documented: tests/cli/test_documented_commands.py looks.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from allocator.cli import main

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    ROOT / "README.md",
    # tests/cli/test_tutorial.py follows the tutorial as a whole
    *sorted(set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "tutorial.md"}),
    *sorted((ROOT / "data").glob("*/README.md")),
)
WORDS = {  # placeholders, as words of a command, and what stands for them
    "SNAPSHOT": "data/snapshots/demo",
    "WORKLOAD": "data/workloads/demo",
    "JOB": "llm-tune",
    "my-cluster": "data/snapshots/demo",
    "my-workload": "data/workloads/demo",
    "bert-3": "llm-tune",
}
SHORTER = (  # (what is documented, what is run, why): regular expressions on the whole command
    (r"simulate data/workloads/(bursty|mixed)", "simulate data/workloads/demo", "the small trace"),
    (
        r"simulate (data/(?:workloads|examples)/[^&|>]*)(?<!--until 90000)$",
        r"simulate \1 --until 3600",
        "one hour of the workload",
    ),
    (
        r"simulate (shared|shop) --policy .*?( --out \S+)?$",
        r"validate \1",
        "hundreds of jobs: checked only",
    ),
    (
        r"frontier data/snapshots/medium (.*)",
        r"frontier data/snapshots/demo \1",
        "the small snapshot",
    ),
    (
        r"run cluster.db (--every \d+ --react \d+ )?(--executor.*)",
        r"run cluster.db --once --grace 0 \2",
        "one round instead of a service",
    ),
    (r"/var/lib/allocator", "adopted", "a folder of this test"),
    (r"/run/allocator.prom", "allocator.prom", "a folder of this test"),
    (r"replay cluster.db 17", "replay cluster.db 1", "the queue of this test has one round"),
    (
        r"explain results/snapshots/mip/000017 \S+",
        "explain results/snapshots/mip/000002 resnet50-02",
        "a job of the small trace",
    ),
    (
        r"whatif (.*)tenants.team-1.max_gpus",
        r"whatif \1tenants.default.max_gpus",
        "the small snapshot has one tenant",
    ),
    (
        r"queue adopt cluster.db$",
        "queue adopt cluster.db --executor files --state actor",
        "no controller has acted on the queue of the help",
    ),
    (r" bert-1 bert-2", " bert-1", "one of them is submitted before"),
    (r"path/to/folder", "data/workloads/demo", "a placeholder"),
    (
        r"--set pools.h100.gpu_type=H100",
        "--set pools.h100.gpu_type=A100",
        "the snapshot knows no rates of an H100",
    ),
)
NEEDS = {  # beginning of a command: what it needs that a test has not, and where it is tested
    "allocator bench policies --executor dask": "a Dask cluster; tests/bench/test_sweep_dask.py",
    "allocator bench policies report": "a finished sweep; tests/bench/test_sweep_cli.py",
    "allocator bench solvers": "minutes; tests/bench/test_bench_solvers.py",
    "allocator doctor | grep": (
        "something that is wrong: else grep ends with 1; tests/cli/test_cli.py"
    ),
    "allocator explain DIR/": (
        "the rounds that --keep-snapshots writes; tests/cli/test_cli_simulate.py"
    ),
    "allocator solve DIR/": (
        "the rounds that --keep-snapshots writes; tests/cli/test_cli_simulate.py"
    ),
    "allocator queue retry": "a job that failed; tests/queue/test_queue_cli.py",
    "allocator demo --live": "a minute; tests/cli/test_cli_run.py",
    "allocator import ": "published traces, or a log of one's own; tests/io/test_traces.py",
    "allocator fit profiles --from sia": "the published profiles; tests/performance/test_fit.py",
    "allocator fit throughputs.json.gz": (
        "the published measurements; tests/performance/test_fit.py"
    ),
    "allocator report postgresql://": "a database server; tests/report/test_report_journal.py",
    "allocator queue init postgresql://": "a database server; tests/queue/test_queue_cli.py",
    "allocator queue import-csv cluster.db workload.csv": (
        "a list of one's own jobs; tests/queue/test_queue_cli.py"
    ),
    "allocator solve data/snapshots/demo --policy newest-first": "tests/engine/test_plugins.py",
    "allocator solve data/snapshots/demo --objective thrifty": "tests/engine/test_plugins.py",
    "allocator run cluster.db --executor shell": "a package; tests/engine/test_plugins.py",
    "allocator observe CLUSTER": "an adapter of one's own; tests/clusters/test_observed_folders.py",
    "allocator observe slurm": "a Slurm; tests/clusters/test_slurm_real.py",
    "allocator observe ray": "a Ray; tests/clusters/test_ray_cluster.py",
    "allocator submit-slurm": "a Slurm; tests/clusters/test_submit_slurm.py",
    "allocator whatif look": "a cluster; tests/clusters/test_slurm_real.py",
    "allocator queue init cluster.db --from snapshot": (
        "a snapshot of one's own; tests/executors/slurm/test_slurm_faults.py"
    ),
    "allocator run cluster.db --executor slurm": (
        "a Slurm; tests/executors/slurm/test_slurm_faults.py"
    ),
    "allocator run cluster.db --executor ray": "a Ray; tests/executors/test_executors.py",
    "allocator observe kubernetes": "a cluster; tests/clusters/test_kubernetes_plans.py",
    "allocator plan look": "a cluster; tests/clusters/test_kubernetes_plans.py",
    "allocator solve look": "a cluster; tests/clusters/test_kubernetes_plans.py",
    "allocator explain look": "a cluster; tests/clusters/test_kubernetes_plans.py",
    "allocator admit": "a cluster; tests/clusters/test_kubernetes_plans.py",
    "allocator run cluster.db --every 60 --executor kubernetes": (
        "a cluster; tests/executors/kubernetes/test_kubernetes_executor.py"
    ),
    "allocator serve": "a service that runs until it is ended; tests/server/test_access.py",
    "allocator solve snapshots/*": "folders of one's own; tests/cli/test_cli.py",
}
# sweeps take minutes: names, loads and folders are looked up, nothing is run
CHECKED = "allocator bench policies "


def examples(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The examples of a command and of all below it."""
    yield from getattr(parser, "examples", "").strip().splitlines()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from examples(below)


def lines_of(page: Path) -> Iterator[str]:
    """Fenced and indented lines of a page; a backslash goes on in the next line."""
    fenced = False
    for line in re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8")).splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def commands(lines: Iterator[str]) -> list[str]:
    """Those that are calls of `allocator`, without comments."""
    said = (re.split(r"\s{2,}(?=\S)|\s+#\s", line)[0] for line in lines)
    return [command for command in said if command.startswith("allocator ") and "[" not in command]


def documented() -> dict[str, list[str]]:
    """Commands by page; those of the help are the page "help"."""
    found = {str(page.relative_to(ROOT)): commands(lines_of(page)) for page in PAGES}
    return {
        page: said
        for page, said in ({**found, "help": commands(examples(main.parser()))}).items()
        if said
    }


def needed(command: str) -> str:
    """What a command needs that a test has not, "" if nothing."""
    return next((why for begin, why in NEEDS.items() if command.startswith(begin)), "")


def runnable(command: str) -> str:
    """What is run in the place of a documented command."""
    said = " ".join(WORDS.get(word, word) for word in command.split(" "))
    for pattern, other, _ in SHORTER:
        said = re.sub(pattern, other, said)
    return said
