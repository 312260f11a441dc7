"""The report of simulations: who wins, where, by how much, and how the cluster was used."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

from allocator.report.charts import lines
from allocator.report.charts.changes import draw_changes
from allocator.report.charts.holders import draw_holders
from allocator.report.charts.rounds import draw_decisions
from allocator.report.charts.series import window
from allocator.report.measures import MEASURES, Measure, number, unit_of
from allocator.report.nodes import draw_simulated_nodes
from allocator.report.page import HEADING, LEAD, NOTE, QUIET, TEXT, Picture, Table, write_page
from allocator.report.runs import POOLED, Study, read_benchmark, read_simulation
from allocator.report.theme import colour
from allocator.report.words import compare_policies, find_best, headline, is_complete

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


def write_simulation_report(folder: Path, out: Path) -> Path:
    """Write the same report of one simulation, a folder of `allocator simulate --out`."""
    return _write(read_simulation(folder), out)


def _write(study: Study, out: Path) -> Path:
    policies, workloads = study.policies, study.split()
    what = ", ".join(policies) if len(policies) < 5 else f"{len(policies)} policies"
    parts: list[Picture | Table | Markup] = [
        *(LEAD.format(_keep_together(headline(work))) for work in workloads),
        *map(NOTE.format, study.notes),
    ]
    for work in workloads:
        parts += [HEADING.format(work.name)] if len(workloads) > 1 else []
        # the changes come before the words
        first, *pictures = _draw(work, "" if len(workloads) == 1 else f"-{work.name}")
        parts += [first] if first.name.startswith("changes") else []
        parts += [TEXT.format(_keep_together(text)) for text in compare_policies(work)]
        parts += [*_list_tables(work), QUIET.format(_how_to_read(study))]
        parts += pictures if first.name.startswith("changes") else [first, *pictures]
    return write_page(
        out, f"{what} on {', '.join(work.name for work in workloads)}", parts, _about(study)
    )


def _keep_together(text: Markup) -> Markup:
    """Replace spaces that must not break: before a percent sign, and inside an interval."""
    kept = re.sub(r"\[[^\]<]*\]", lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return Markup(kept.replace(" %", "\N{NO-BREAK SPACE}%"))


def _about(study: Study) -> str:
    """Return what was simulated."""
    seeds = sorted({run.seed for run in study.runs})
    jobs = sorted({int(run.metrics.get("jobs", 0)) for run in study.runs})
    size = f"{jobs[0]:,}" if jobs[0] == jobs[-1] else f"{jobs[0]:,} to {jobs[-1]:,}"
    loads = sum(len(work.loads) for work in study.split() if work.loads != [""])
    parts = [
        f"{len(study.runs)} simulation{'s' * (len(study.runs) > 1)} of {size}"
        f" job{'s' * (jobs[-1] != 1)}",
        f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds",
        *([f"{loads} loads"] if loads > 1 else []),
        *([f"baseline {study.baseline}"] if len(study.policies) > 1 else []),
    ]
    return "; ".join([", ".join(parts), *([study.machine] if study.machine else [])])


def _how_to_read(study: Study) -> str:
    words = SIDES.format(study.baseline) + (SINGLE if study.single else MANY)
    seeds = len({run.seed for run in study.runs})
    if seeds < FEW and not study.single:
        words += f" With {seeds} seeds everything stays undecided: ask for {FEW} or more."
    return words


def _list_tables(work: Study) -> Iterator[Table]:
    """Yield a table for each load, and one of the changes over all loads together."""
    shown = {}
    for m in MEASURES:
        values = [run.metrics.get(m.key, math.nan) for run in work.runs]
        if any(math.isfinite(x) and (x or m.kind != "money") for x in values):
            shown[m] = unit_of(
                m, [work.mean(load, p, m.key) for load in work.loads for p in work.policies]
            )
    sides = {-1: "↓", 1: "↑", 0: ""}
    titles = (f"{m.title} {unit} {sides[m.better]}".strip() for m, (unit, _) in shown.items())
    head = ["policy", *titles]
    for load in [*work.loads, *([POOLED] if work.is_pooled else [])]:
        rows = [
            [
                POLICY.format(colour(policy), policy)
                + SMALL.format("", "baseline")
                * (policy == work.baseline and len(work.policies) > 1),
                *(_cell(work, load, policy, m, size) for m, (_, size) in shown.items()),
            ]
            for policy in work.policies
            if (load == POOLED and policy != work.baseline) or work.of(load, policy)
        ]
        where = f", {work.together}" if load == POOLED else f", load {load}" * bool(load)
        yield Table(f"All numbers{where}", head, rows)


def _cell(work: Study, load: str, policy: str, measure: Measure, size: float) -> Markup:
    """Return a mean, and in small print its change against the baseline."""
    key, value = measure.key, work.mean(load, policy, measure.key)
    star = "*" * (find_best(work, load, key) == policy)
    text, kind = number(value / size) + star, "best" if star else ""
    if key == "finished":
        value, jobs = (work.sum(load, policy, name) for name in ("finished", "jobs"))
        is_short = value < jobs or not is_complete(work, load, policy)
        text = f"{value:,.0f}" + (f" of {jobs:,.0f}" if is_short else "")
        kind = "worse" if is_short else ""
    out = CELL.format(kind, key, value, text) if math.isfinite(value) else Markup(text)
    change = work.change(load, policy, key) if measure.better else None
    out = Markup("") if load == POOLED else out
    if change is not None:
        out += SMALL.format("" if work.single else change.verdict, change.words)
    return out


def _draw(work: Study, tail: str) -> Iterator[Picture]:
    """Yield the pictures of a workload, in order of the page."""
    tail = re.sub(r"[^\w.-]+", "_", tail)
    many = len({run.seed for run in work.runs}) > 1
    is_banded = len(work.policies) <= lines.BANDS
    band = " Line: mean over the seeds" + ("; band: 8 of 10 seeds." if is_banded else ".")
    band = band if many else ""
    compared = draw_changes(work)
    if compared is not None:
        dots = (
            "One simulation: no intervals."
            if work.single
            else "A dot is the mean change over the seeds, with its 95 % interval. A pale one is"
            " undecided: the interval holds 0, or Wilcoxon's paired test gives p above 5 %."
        )
        yield Picture(
            "changes" + tail,
            f"Who wins where: change against {work.baseline}",
            f"Blue background: better than {work.baseline}. Orange background: worse. {dots}",
            compared,
        )
    yield Picture(
        "times" + tail,
        "How long jobs take",
        "Share of all jobs that were done, or had started, after a time. Further left and further"
        " up is better. The line of a policy that left jobs undone ends below “all”." + band,
        lines.draw_times(work),
    )
    windows = {load: window([run for run in work.runs if run.load == load]) for load in work.loads}
    by_load = {load: lines.collect(work, load, shown.length_s) for load, shown in windows.items()}
    cut = max(windows.values(), key=lambda w: w.longest_s - w.length_s).words()
    yield Picture(
        "queue" + tail,
        "The queue",
        "Number of submitted, unfinished jobs that hold no GPU; lower is better. The queueing time"
        " in the table ends at the first start. The picture also counts jobs that are paused later,"
        " to make space for others." + band,
        lines.draw_over_time(by_load, lines.WAITING, "jobs that wait"),
    )
    load = work.loads[-1]
    seed = work.typical_seed(load)
    runs = [run for p in work.policies for run in work.of(load, p) if run.seed == seed]
    where = f"load {load}, " if load else ""
    middle = ", the one in the middle by the baseline's completion time" if many else ""
    which = f" Shown: {where}seed {seed}{middle}." if many or load else ""
    length = window(runs).length_s
    yield Picture(
        "holders" + tail,
        "Who holds the GPUs",
        "Every block is a job. Its height is the number of its GPUs, its length the time for which"
        " it holds them. What is empty is idle. All panels show the same jobs." + which,
        draw_holders(runs, length),
    )
    is_priced = lines.is_priced(by_load)
    use = lines.HELD | lines.PAID if is_priced else lines.HELD
    yield Picture(
        "use" + tail,
        "GPUs in use, and what they cost" if is_priced else "GPUs in use",
        "The space below the dashed line shows idle GPUs." + band + cut,
        lines.draw_over_time(by_load, use, "GPUs in use"),
    )
    yield Picture(
        "decisions" + tail,
        "Decisions",
        "Each point is a round. The gap says by how much the best plan could be better at most. For"
        " a policy that does not maximise the value, it shows how much value the policy gives up."
        + which,
        draw_decisions(runs, length),
    )
    yield from draw_simulated_nodes(runs, length, tail)
