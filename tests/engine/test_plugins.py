"""Parts from outside: the package of docs/extending.md, installed, and broken packages."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from builders import snapshot
from places import ROOT
from waiting import PATIENCE_S

import allocator
from allocator.domain import objectives
from allocator.executors import registry as executors
from allocator.policies import base as policies
from allocator.solvers import registry as solvers

DEMO = str(ROOT / "data" / "snapshots" / "demo")
BLOCK = re.compile(r"```(?:python|toml)\n# ([\w.]+)\n(.*?)```", re.DOTALL)
FILES = dict(BLOCK.findall((ROOT / "docs" / "extending.md").read_text(encoding="utf-8")))


RUN = ("run", "--executor", "shell", "--every", "0.5", "--poll", "0.1")


def install(folder: Path, files: dict[str, str]) -> None:
    """Put a package into a folder as an installer does: modules and entry points."""
    project = tomllib.loads(files["pyproject.toml"])["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"]
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in parts.items())
            for group, parts in groups.items()
        )
    )
    for name, text in files.items():
        if name.endswith(".py"):
            (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where packages are installed, on the path of this process and its children."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT)]))
    for registry in (executors, objectives, policies, solvers):
        monkeypatch.setattr(registry.REGISTRY, "_added", {})
    return folder


def call(*arguments: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a command of the package in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "allocator", *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def test_an_installed_policy_objective_and_solver(site: Path) -> None:
    """The parts of the page decide the demo, on the command line and in Python, by their names."""
    install(site, FILES)
    done = call("solve", DEMO, "--policy", "newest-first", "--format", "json")
    assert done.returncode == 0 and '"policy": "newest-first"' in done.stdout, done.stderr
    problem = allocator.Problem.read(DEMO)
    submitted = problem.checked.jobs.submitted_s
    assert allocator.solve(problem, policy="newest-first").jobs["gpus"][submitted.argmax()] > 0
    plan = allocator.solve(problem, objective="thrifty", solver="scipy", gap=1e-6)
    assert (plan.solver, plan.status, plan.objective) == ("scipy", "optimal", "thrifty")
    assert plan.objective_value == pytest.approx(
        allocator.solve(problem, objective="thrifty", gap=1e-6).objective_value, rel=1e-5
    )
    ranked = allocator.solve(problem, objective="thrifty=2,cost=0.5 > progress")
    assert ranked.objective == "thrifty=2,cost=0.5 > progress"
    assert allocator.explain(problem, "pretrain", objective="thrifty").got["reason"]


def test_the_parts_without_a_package(site: Path) -> None:
    """The last block of the page registers the parts, where their modules can be imported."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for name, text in FILES.items():
        (site / name).write_text(text, encoding="utf-8")
    names: dict[str, Any] = {}
    with contextlib.chdir(ROOT):
        exec(page.rpartition("```python\n")[2].partition("```")[0], names)
    assert (names["plan"].solver, names["plan"].objective) == ("scipy", "thrifty")


def test_an_installed_executor(site: Path, tmp_path: Path) -> None:
    """A controller runs a job to its end under the executor of the page, and stops another."""
    install(site, FILES)
    queue = str(tmp_path / "cluster.db")
    with allocator.Queue.create(queue, snapshot(pools=[{"gpus": 4}])) as jobs:
        for name, command in (("short", "exit 0"), ("failing", "exit 3"), ("endless", "sleep 60")):
            job = allocator.Job(name, "m", remaining_work=1e6, max_gpus=1)
            jobs.submit(job, command=["sh", "-c", command])
        controller = subprocess.Popen(
            [sys.executable, "-m", "allocator", *RUN, "--log", str(tmp_path / "log"), queue]
        )
        try:
            wait_for(lambda: jobs.job("short").state == "done", controller)
            wait_for(lambda: jobs.job("endless").state == "running", controller)
            wait_for(lambda: jobs.job("failing").failures > 0, controller)
            jobs.cancel("endless")
            wait_for(lambda: jobs.job("endless").state == "cancelled", controller)
        finally:
            controller.terminate()
            assert controller.wait(timeout=PATIENCE_S) == 0


def wait_for(is_true: Any, controller: subprocess.Popen[bytes], seconds: float = 120.0) -> None:
    """Wait until something holds, while the controller lives."""
    end = time.monotonic() + seconds
    while not is_true():
        assert controller.poll() is None and time.monotonic() < end
        time.sleep(0.05)


BROKEN = """[project]
name = "broken-parts"
version = "2.0"
[project.entry-points."allocator.policies"]
cracked = "cracked:policy"
number = "number:seven"
mip = "cracked:policy"
[project.entry-points."allocator.objectives"]
cracked = "cracked:objective"
[project.entry-points."allocator.solvers"]
cracked = "cracked"
[project.entry-points."allocator.executors"]
cracked = "cracked:Executor"
"""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--policy", "cracked"),
            'policy "cracked" of broken-parts 2.0 cannot be loaded (cracked:policy):'
            " RuntimeError: made in haste",
        ),
        (
            ("--policy", "number"),
            "TypeError: a policy is a function or a PolicyEntry, not 7",
        ),
        (
            ("--objective", "cracked"),
            'objective "cracked" of broken-parts 2.0 cannot be loaded (cracked:objective)',
        ),
        (("--policy", "craked"), 'unknown policy "craked"; did you mean "cracked"?'),
        (("--solver", "craked"), "highs, cpsat, pulp, cracked)"),
    ],
)
def test_a_broken_package_is_named(
    site: Path, arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line that names part and package; a misspelt name lists what there is."""
    from allocator.cli import main

    crack(site)
    code = main.run(["solve", DEMO, *arguments])
    err = capsys.readouterr().err
    assert code == 2 and says in err and "Traceback" not in err


def crack(site: Path) -> None:
    """Install a package that cannot be loaded."""
    install(
        site,
        {
            "pyproject.toml": BROKEN,
            "cracked.py": "raise RuntimeError('made in haste')\n",
            "number.py": "seven = 7\n",
        },
    )


def test_a_broken_package_does_not_stop_others(site: Path) -> None:
    """Besides it, the parts of the package itself and of other packages work, and keep their names;
    a solver that cannot be loaded is replaced as one that fails."""
    crack(site)
    install(site, FILES)
    problem = allocator.Problem.read(DEMO)
    assert allocator.solve(problem, policy="newest-first").policy == "newest-first"
    assert allocator.solve(problem, objective="thrifty", gap=1e-7).status == "optimal"
    plan = allocator.solve(problem, solver="cracked", gap=0.0)
    assert plan.fallback and any("made in haste" in warning for warning in plan.warnings)
    assert set(policies.REGISTRY.names()) >= {"mip", "cracked", "number", "newest-first"}


def test_two_packages_with_one_name(site: Path) -> None:
    """A name that two packages declare is refused, with both."""
    install(site, FILES)
    other = {"pyproject.toml": FILES["pyproject.toml"].replace("my-parts", "your-parts")}
    install(site, other)
    with pytest.raises(allocator.UsageError, match=r"by my-parts 1\.0 and your-parts 1\.0"):
        policies.policy("newest-first")


def test_names_of_the_package_stay(site: Path) -> None:
    """Nobody can register another part under a name of the package; one's own can be replaced."""
    for registry in (executors, objectives, policies, solvers):
        name = next(iter(registry.REGISTRY.built_in))
        with pytest.raises(allocator.UsageError, match=f'"{name}" already'):
            registry.REGISTRY.add(name, None)  # type: ignore[arg-type]
    first, second = (lambda task: task), (lambda task: task)
    allocator.register_policy("mine", first)  # type: ignore[arg-type]
    allocator.register_policy("mine", second)  # type: ignore[arg-type]
    assert policies.policy("mine").decide is second
