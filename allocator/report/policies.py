"""The report of simulations: who wins, where, by how much, and how the cluster was used."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

from allocator.report.charts import changes, cluster, holders, rounds, times
from allocator.report.charts.series import window
from allocator.report.measures import MEASURES, Measure, interval, number, percent, unit_of
from allocator.report.nodes.simulated import draw_simulated_nodes
from allocator.report.page import HEADING, LEAD, NOTE, QUIET, TEXT, Picture, Table, write_page
from allocator.report.runs import POOLED, Study, read_benchmark, read_simulation
from allocator.report.theme import colour
from allocator.report.words import best, compare_policies, complete, headline

REPORT = "report.html"
CELL = Markup('<span class="{}" data-metric="{}" title="{}">{}</span>')
SMALL = Markup('<span class="small {}">{}</span>')
POLICY = Markup(
    '<svg class="key" viewBox="0 0 10 10" aria-hidden="true">'
    '<circle cx="5" cy="5" r="5" fill="{}"/></svg>{}'
)
SIDES = "↓ less is better, ↑ more is better, * best. Small: change against {}."
SINGLE = " One simulation gives no interval; “allocator bench policies” repeats it and gives one."
MANY = (
    " Means over the seeds; changes are means over pairs of equal jobs, with their 95 % bootstrap"
    " intervals. Blue: better, orange: worse (the interval excludes 0 and Wilcoxon's paired test"
    " gives p < 0.05), neither: undecided."
)
FEW = 6  # seeds; with fewer the paired test cannot decide


def write_policy_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a folder of `allocator bench policies --out`; return its path.

    If no simulation has finished yet, the page says so. Pictures go to the folder `pictures` next
    to the page.

    Parameters
    ----------
    folder : of the benchmark.
    out : the HTML file. The default is report.html in the folder.

    Raises
    ------
    UsageError
        For files that are missing.
    InvalidInput
        For files with other columns.
    """
    study = read_benchmark(Path(folder))
    out = Path(out) if out else Path(folder) / REPORT
    if not study.runs:
        words = "No simulation has finished; what went wrong is in the folder “failed”."
        return write_page(out, "Nothing yet", [NOTE.format(words)])
    return _write(study, out)


def write_simulation_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the same report of one simulation, a folder of `allocator simulate --out`."""
    return _write(read_simulation(Path(folder)), Path(out) if out else Path(folder) / REPORT)


def _write(study: Study, out: Path) -> Path:
    policies = study.policies()
    workloads = study.workloads()
    what = ", ".join(policies) if len(policies) < 5 else f"{len(policies)} policies"
    parts: list[Picture | Table | Markup] = [
        LEAD.format(_keep_together(headline(study, workload))) for workload in workloads
    ]
    parts += [NOTE.format(note) for note in study.notes]
    for workload in workloads:
        parts += [HEADING.format(workload)] if len(workloads) > 1 else []
        pictures = list(_draw(study, workload))
        first = [p for p in pictures if p.name.startswith("changes")]
        parts += first
        parts += [TEXT.format(_keep_together(t)) for t in compare_policies(study, workload)]
        parts += [
            *_tables(study, workload),
            QUIET.format(_how_to_read(study)),
            *pictures[len(first) :],
        ]
    return write_page(out, f"{what} on {', '.join(workloads)}", parts, _about(study))


def _keep_together(text: Markup) -> Markup:
    """Replace spaces that must not break: before a percent sign, and inside an interval."""
    kept = re.sub(r"\[[^\]<]*\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return Markup(kept.replace(" %", "\N{NO-BREAK SPACE}%"))


def _about(study: Study) -> str:
    """Return what was simulated."""
    seeds = sorted({r.seed for r in study.runs})
    jobs = sorted({int(r.metrics.get("jobs", 0)) for r in study.runs})
    size = f"{jobs[0]:,}" if jobs[0] == jobs[-1] else f"{jobs[0]:,} to {jobs[-1]:,}"
    loads = sum(len(study.loads(w)) for w in study.workloads() if study.loads(w) != [""])
    parts = [
        f"{len(study.runs)} simulation{'s' * (len(study.runs) > 1)} of {size}"
        f" job{'s' * (jobs[-1] != 1)}",
        f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds",
        *([f"{loads} loads"] if loads > 1 else []),
        *([f"baseline {study.baseline}"] if len(study.policies()) > 1 else []),
    ]
    return "; ".join([", ".join(parts), *([study.machine] if study.machine else [])])


def _how_to_read(study: Study) -> str:
    words = SIDES.format(study.baseline) + (SINGLE if study.single else MANY)
    seeds = len({run.seed for run in study.runs})
    if seeds < FEW and not study.single:
        words += f" With {seeds} seeds everything stays undecided: ask for {FEW} or more."
    return words


def _tables(study: Study, workload: str) -> Iterator[Table]:
    """Yield a table for each load, and one of the changes over all loads together."""
    loads, policies = study.loads(workload), study.policies(workload)
    shown = [m for m in MEASURES if any(_is_shown(m, r.metrics.get(m.key)) for r in study.runs)]
    units = {}
    for m in shown:
        means = [study.mean(workload, load, p, m.key) for load in loads for p in policies]
        units[m.key] = unit_of(m, means)
    sides = {-1: "↓", 1: "↑", 0: ""}
    head = ["policy", *(f"{m.title} {units[m.key][0]} {sides[m.better]}".strip() for m in shown)]
    pooled = any((c.workload, c.load) == (workload, POOLED) for c in study.changes)
    for load in [*loads, *([POOLED] if pooled else [])]:
        rows = [
            [
                _name(study, policy),
                *(_cell(study, workload, load, policy, m, units[m.key][1]) for m in shown),
            ]
            for policy in policies
            if (load == POOLED and policy != study.baseline) or study.of(workload, load, policy)
        ]
        where = f", {study.together(workload)}" if load == POOLED else f", load {load}" * bool(load)
        yield Table(f"All numbers{where}", head, rows)


def _is_shown(measure: Measure, value: float | None) -> bool:
    is_known = value is not None and math.isfinite(value)
    return is_known and (value != 0 or measure.kind != "money")


def _name(study: Study, policy: str) -> Markup:
    name = POLICY.format(colour(policy), policy)
    is_baseline = policy == study.baseline and len(study.policies()) > 1
    return name + (SMALL.format("", "baseline") if is_baseline else "")


def _cell(
    study: Study, workload: str, load: str, policy: str, measure: Measure, size: float
) -> Markup:
    """Return a mean, and in small print its change against the baseline."""
    value = study.mean(workload, load, policy, measure.key)
    star = "*" * (best(study, workload, load, measure.key) == policy)
    text, kind = number(value / size) + star, "best" if star else ""
    if measure.key == "finished":
        runs = study.of(workload, load, policy)
        value, jobs = (sum(r.metrics.get(k, 0.0) for r in runs) for k in ("finished", "jobs"))
        is_short = value < jobs or not complete(study, workload, load, policy)
        text = f"{value:,.0f}" + (f" of {jobs:,.0f}" if is_short else "")
        kind = "worse" if is_short else ""
    change = study.change(workload, load, policy, measure.key) if measure.better else None
    out = CELL.format(kind, measure.key, value, text) if math.isfinite(value) else Markup(text)
    if load == POOLED:
        out = Markup("")
    if change is not None and math.isfinite(change.percent):
        words = f"{percent(change.percent)} % {interval(change.low, change.high)}".strip()
        out += SMALL.format("" if study.single else change.verdict, words)
    return out


def _draw(study: Study, workload: str) -> Iterator[Picture]:
    """Yield the pictures of a workload, in order of the page."""
    tail = "" if len(study.workloads()) == 1 else "-" + re.sub(r"[^\w.-]+", "_", workload)
    loads = study.loads(workload)
    many = len({r.seed for r in study.runs}) > 1
    is_banded = len(study.policies(workload)) <= cluster.BANDS
    band = " Line: mean over the seeds" + ("; band: 8 of 10 seeds." if is_banded else ".")
    band = band if many else ""
    compared = changes.changes(study, workload)
    if compared is not None:
        dots = (
            "One simulation: no intervals."
            if study.single
            else "A dot is the mean change over the seeds, with its 95 % interval. A pale one is"
            " undecided: the interval holds 0, or Wilcoxon's paired test gives p above 5 %."
        )
        yield Picture(
            "changes" + tail,
            f"Who wins where: change against {study.baseline}",
            f"Blue background: better than {study.baseline}. Orange background: worse. {dots}",
            compared,
        )
    yield Picture(
        "times" + tail,
        "How long jobs take",
        "Share of all jobs that were done, or had started, after a time. Further left and further"
        " up is better. The line of a policy that left jobs undone ends below “all”." + band,
        times.times(study, workload),
    )
    windows = {
        load: window(study, [r for r in study.runs if (r.workload, r.load) == (workload, load)])
        for load in loads
    }
    found = {load: cluster.collect(study, workload, load, windows[load].length_s) for load in loads}
    cut = max(windows.values(), key=lambda w: w.longest_s - w.length_s).words()
    yield Picture(
        "queue" + tail,
        "The queue",
        "Number of submitted, unfinished jobs that hold no GPU; lower is better. The queueing time"
        " in the table ends at the first start. The picture also counts jobs that are paused later,"
        " to make space for others." + band,
        cluster.queue(study, found),
    )
    load = loads[-1]
    seed = study.typical_seed(workload, load)
    runs = [r for p in study.policies(workload) for r in study.of(workload, load, p)]
    runs = [r for r in runs if r.seed == seed]
    where = f"load {load}, " if load else ""
    middle = ", the one in the middle by the baseline's completion time" if many else ""
    which = f" Shown: {where}seed {seed}{middle}." if many or load else ""
    length = window(study, runs).length_s
    yield Picture(
        "holders" + tail,
        "Who holds the GPUs",
        "Every block is a job. Its height is the number of its GPUs, its length the time for which"
        " it holds them. What is empty is idle. All panels show the same jobs." + which,
        holders.holders(study, runs, length),
    )
    yield Picture(
        "use" + tail,
        "GPUs in use, and what they cost" if cluster.priced(found) else "GPUs in use",
        "The space below the dashed line shows idle GPUs." + band + cut,
        cluster.use(study, found),
    )
    yield Picture(
        "decisions" + tail,
        "Decisions",
        "Each point is a round. The gap says by how much the best plan could be better at most. For"
        " a policy that does not maximise the value, it shows how much value the policy gives up."
        + which,
        rounds.decisions(study, runs, length),
    )
    yield from draw_simulated_nodes(study, runs, length, tail)
