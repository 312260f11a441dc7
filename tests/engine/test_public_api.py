"""The public API: every name is documented, every example runs, records follow the same rules."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from everything import EVERYTHING, content
from places import ROOT

import allocator
from allocator.domain import objectives
from allocator.domain.records import RECORDS
from allocator.domain.schema.columns import RULE, TABLES
from allocator.executors import registry as executors
from allocator.io.snapshots import parse_snapshot
from allocator.policies import base as policies
from allocator.policies.rules.static import static
from allocator.solvers import registry as solvers

DEMO = "data/snapshots/demo"
NAMES = [name for name in allocator.__all__ if not name.startswith("__")]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples name folders of the repository; what they register is forgotten."""
    monkeypatch.chdir(ROOT)
    for registry in (executors, objectives, policies, solvers):
        monkeypatch.setattr(registry.REGISTRY, "_added", {})


def members(name: str) -> Iterator[tuple[str, Any]]:
    """Yield a public name and the public methods of a class."""
    thing = getattr(allocator, name)
    yield name, thing
    if inspect.isclass(thing):
        for key, method in vars(thing).items():
            plain = method.__func__ if isinstance(method, classmethod | staticmethod) else method
            if inspect.isfunction(plain) and not key.startswith("_"):
                yield f"{name}.{key}", plain


def lacking(name: str, thing: Any) -> Iterator[str]:
    """Yield what the docstring of a public name lacks."""
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    lines = inspect.cleandoc(text or "").splitlines()
    if not lines or not lines[0].endswith(".") or (len(lines) > 1 and lines[1]):
        yield f"{name}: a summary of one line"
    headings = {line for line, under in itertools.pairwise(lines) if set(under) == {"-"} and line}
    needs = set[str]() if "." in name else {"Examples"}
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and headings.isdisjoint({"Parameters", "Attributes"}):
            needs.add("Parameters")
        told = " ".join(lines)
        fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
        yield from (f"{name}: the field {f.name}" for f in fields if f.name not in told)
    else:
        signature = inspect.signature(thing)
        if set(signature.parameters) - {"self", "cls"}:
            needs.add("Parameters")
        if signature.return_annotation not in ("None", "Self"):
            needs.add("Returns")
    yield from (f"{name}: the section {heading}" for heading in sorted(needs - headings))


def test_every_public_name_is_documented() -> None:
    """Each exported name has a summary, its sections and an example; each method its sections."""
    faults = [
        fault for name in NAMES for full, thing in members(name) for fault in lacking(full, thing)
    ]
    assert faults == []


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str) -> None:
    """The examples of a public name print what they say."""
    module = inspect.getmodule(getattr(allocator, name))
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    tried = 0
    for full, thing in members(name):
        for test in finder.find(thing, full, module=module, globs=vars(module).copy()):
            report: list[str] = []
            result = runner.run(test, out=report.append)
            assert result.failed == 0, "".join(report)
            tried += result.attempted
    assert tried > 0


def test_the_example_of_the_package_runs() -> None:
    """The example that the package itself shows prints what it says."""
    assert doctest.testmod(allocator).failed == 0 and doctest.testmod(allocator).attempted > 0


def test_the_code_of_the_page_runs() -> None:
    """The calls of docs/extending.md run, one after the other."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").partition("## Add")[0]
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert names["faults"] == [
        'jobs.csv:2: remaining_work -5 must be above 0 (job "a")',
        'jobs.csv:2: max_gpus 2 is below min_gpus 4 (job "a")',
    ]
    assert names["more"].gpus[1] >= names["more"].gpus[0]


@pytest.mark.parametrize("table", RECORDS)
def test_records_have_the_columns_of_the_files(table: str) -> None:
    """A record has a field for each column of its table, with the same default."""
    columns = {column.name: column for column in TABLES[f"{table}.csv"].columns}
    fields = {field.name: field for field in dataclasses.fields(RECORDS[table])}
    assert set(RECORDS) == {file.removesuffix(".csv") for file in TABLES}
    # further columns of nodes.csv are levels of the topology
    assert set(fields) - {"labels"} == set(columns)
    for name, column in columns.items():
        if not column.required:
            default = None if column.default == RULE else column.default
            assert fields[name].default == default, name


def test_records_equal_files() -> None:
    """A problem built from records is the problem of files with the same cells."""
    files = allocator.Problem(parse_snapshot("files", EVERYTHING))
    records: dict[str, list[Any]] = {}
    for file, table in files.snapshot.tables.items():
        key = file.removesuffix(".csv")
        kinds = {column.name: column.kind for column in TABLES[file].columns}
        rows = [
            {
                name: python_value(kinds[name], cells[i])
                for name, cells in table.columns.items()
                if cells[i] and name in kinds
            }
            for i in range(len(table))
        ]
        if file == "nodes.csv":
            rows = [
                row | {"labels": {"block": block}}
                for row, block in zip(rows, table.columns["block"], strict=True)
            ]
        records[key] = [RECORDS[key](**row) for row in rows]
    built = allocator.Problem.build(**records, **files.snapshot.config)
    assert content(built.checked) == content(files.checked)


def python_value(kind: str, cell: str) -> Any:
    """Return the value that a user of Python writes for a cell."""
    if kind in ("integer", "number"):
        return float(cell)
    if kind == "boolean":
        return cell.lower() in ("true", "yes", "1")
    if kind in ("integers", "texts"):
        return [int(x) if kind == "integers" else x for x in cell.split("|")]
    return json.loads(cell) if kind == "json" else cell


def test_a_function_is_a_policy() -> None:
    """A policy given as a function decides as its name does, in other verbs too."""
    problem = allocator.Problem.read(DEMO)
    by_name, by_function = (allocator.solve(problem, policy=p) for p in ("static", static))
    assert by_function.policy == "static"
    assert by_name.to_frame().equals(by_function.to_frame())
    assert allocator.whatif(problem, {"pools.a100.gpus": 4}, policy=static).jobs
    assert allocator.simulate(problem, policy=static).policy == "static"
    assert allocator.Rounds(policy=static).solve(problem).policy == "static"


def test_audit_finds_what_a_plan_breaks() -> None:
    """The audit of a plan is legal and has its value; unknown jobs and pools are wrong calls."""
    problem = allocator.Problem.read(DEMO)
    plan = allocator.solve(problem)
    told = allocator.audit(problem, plan)
    assert told.faults == () and told.objective_value == pytest.approx(plan.objective_value)
    assert any(
        "budget" in fault for fault in allocator.audit(problem, {"pretrain": ("a100", 16)}).faults
    )
    with pytest.raises(allocator.UsageError, match='no job "nobody"'):
        allocator.audit(problem, {"nobody": ("a100", 1)})
    with pytest.raises(allocator.UsageError, match='no pool "b100"'):
        allocator.audit(problem, {"pretrain": ("b100", 1)})


def test_public_names_stay_what_they_are() -> None:
    """They are shown before any was used, and nothing else; the functions explain, whatif and audit
    stay, whoever imports the modules of that name."""
    code = (
        "import allocator; print(*dir(allocator))\n"
        "import allocator.audit, allocator.engine.explain, allocator.engine.whatif\n"
        "assert all(callable(f) for f in (allocator.explain, allocator.whatif, allocator.audit))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(allocator.__all__)


def test_first_mistakes_say_what_is_meant() -> None:
    """A misspelt setting, a record in the wrong list, a name in place of a problem or workload, and
    a policy that returns nothing."""

    def forgetful(_: object) -> None: ...

    for call, says in (
        (lambda: allocator.Problem.build(jobs=[], pools=[], intervall_s=1), "did you mean"),
        (
            lambda: allocator.Problem.build(jobs=[], pools=[allocator.Job("a", "m", 1, 1)]),
            "pools takes Pool records, not Job",
        ),
        (lambda: allocator.solve("demo"), r"not 'demo'; Problem.read\(FOLDER\) reads one"),
        (lambda: allocator.simulate("trace"), r"not 'trace'; read_workload\(FOLDER\) reads one"),
        (
            lambda: allocator.solve(allocator.Problem.read(DEMO), policy=forgetful),
            'policy "forgetful" has to return a Proposal, and returned None',
        ),
    ):
        with pytest.raises((TypeError, allocator.UsageError), match=says):
            call()


def test_a_notebook_shows_a_plan_as_a_table() -> None:
    """The line of its repr, and a row for each job; names are escaped."""
    plan = allocator.solve(allocator.Problem.read(DEMO))
    page = dataclasses.replace(plan, snapshot="<b>")._repr_html_()
    assert page.startswith("<p>Plan(&#x27;&lt;b&gt;&#x27;, policy=")
    assert page.count("<tr") == 1 + len(plan.jobs["job_id"])
