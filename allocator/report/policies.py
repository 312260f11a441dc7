"""Reports of simulations and of policy benchmarks: report.html, and its pictures as files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from allocator.report.charts import changes, cluster, holders, rounds, times
from allocator.report.charts.series import window
from allocator.report.nodes.simulated import node_figures
from allocator.report.page import Picture, draw, write_page
from allocator.report.policy_table import PolicyTable, policy_table
from allocator.report.runs import Study, read_benchmark, read_simulation
from allocator.report.words import compare_policies, headline

REPORT = "report.html"


def write_policy_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a folder of `allocator bench policies --out`; return its path.

    If no simulation has finished yet, the page says so. Without matplotlib the report has only
    tables and words, and says so. Pictures go to the folder `pictures` next to the page.

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
        return write_page(out, "nothing.html", title="Nothing yet")
    return write(study, out)


def write_simulation_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the same report of one simulation, a folder of `allocator simulate --out`."""
    return write(read_simulation(Path(folder)), Path(out) if out else Path(folder) / REPORT)


@dataclass(frozen=True)
class Section:
    """The part of a page about one workload.

    Attributes
    ----------
    comparisons : a text per policy.
    compared : the picture of the comparisons, if there is one.
    pictures : all other pictures.
    """

    workload: str
    headline: Markup
    comparisons: Sequence[Markup]
    table: PolicyTable
    compared: Sequence[Picture]
    pictures: Sequence[Picture]


def write(study: Study, out: Path) -> Path:
    """Write report and pictures, each file whole or not at all."""
    policies = study.policies()
    workloads = study.workloads()
    what = ", ".join(policies) if len(policies) < 5 else f"{len(policies)} policies"
    drawn = {workload: draw(figures(study, workload)) for workload in workloads}
    return write_page(
        out,
        "policies.html",
        [picture for found in drawn.values() for picture in found],
        title=f"{what} on {', '.join(workloads)}",
        about=about(study),
        notes=study.notes,
        sections=[
            Section(
                workload,
                _keep_together(headline(study, workload)),
                [_keep_together(text) for text in compare_policies(study, workload)],
                policy_table(study, workload),
                [p for p in found if p.name.startswith("changes")],
                [p for p in found if not p.name.startswith("changes")],
            )
            for workload, found in drawn.items()
        ],
        is_single=study.single,
        baseline=study.baseline,
        has_comparison=len(policies) > 1,
        seeds=len({run.seed for run in study.runs}),
    )


def _keep_together(text: Markup) -> Markup:
    """Replace spaces that must not break: before a percent sign, and inside an interval."""
    kept = re.sub(r"\[[^\]<]*\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return Markup(kept.replace(" %", "\N{NO-BREAK SPACE}%"))


def about(study: Study) -> str:
    """Return what was simulated."""
    seeds = sorted({r.seed for r in study.runs})
    jobs = sorted({int(r.metrics.get("jobs", 0)) for r in study.runs})
    size = f"{jobs[0]:,}" if jobs[0] == jobs[-1] else f"{jobs[0]:,} to {jobs[-1]:,}"
    loads = sum(len(study.loads(w)) for w in study.workloads() if study.loads(w) != [""])
    parts = [
        (
            f"{len(study.runs)} simulation{'s' * (len(study.runs) > 1)} of {size}"
            f" job{'s' * (jobs[-1] != 1)}"
        ),
        f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds",
    ]
    if loads > 1:
        parts.append(f"{loads} loads")
    if len(study.policies()) > 1:
        parts.append(f"baseline {study.baseline}")
    return "; ".join([", ".join(parts), *([study.machine] if study.machine else [])])


def figures(study: Study, workload: str) -> Iterator[tuple[str, str, str, Any]]:
    """Yield name, title, caption and figure of each picture of a workload, in order of the page."""
    tail = "" if len(study.workloads()) == 1 else "-" + re.sub(r"[^\w.-]+", "_", workload)

    loads = study.loads(workload)
    many = len({r.seed for r in study.runs}) > 1
    band = ""
    if many:
        band = (
            " Means over the seeds."
            if len(study.policies(workload)) > cluster.BANDS
            else " Line: mean over the seeds; band: 8 of 10 seeds."
        )
    compared = changes.changes(study, workload)
    if compared is not None:
        dots = (
            "A dot is the mean change over the seeds, with its 95 % interval. A hollow dot is"
            " undecided: the interval holds 0, or Wilcoxon's paired test gives p above 5 %."
            if not study.single
            else "One simulation: no intervals."
        )
        yield (
            "changes" + tail,
            f"Who wins where: change against {study.baseline}",
            f"Blue background: better than {study.baseline}. Orange background: worse. {dots}",
            compared,
        )
    pooled = " of all seeds" if many else ""
    yield (
        "times" + tail,
        "How long jobs take",
        f"Share of all jobs{pooled} that were done, or had started, after a time. Further"
        " left and further up is better. The line of a policy that left jobs undone ends below"
        " “all”." + (" Band: 8 of 10 seeds." if "band" in band else ""),
        times.times(study, workload),
    )
    windows = {
        load: window(study, [r for r in study.runs if (r.workload, r.load) == (workload, load)])
        for load in loads
    }
    found = {load: cluster.collect(study, workload, load, windows[load].length_s) for load in loads}
    cut = max(windows.values(), key=lambda w: w.longest_s - w.length_s).words()
    yield (
        "queue" + tail,
        "The queue",
        "Number of submitted, unfinished jobs that hold no GPU; lower is better. The queueing time"
        " in the table ends at the first start. The picture also counts jobs that are paused later,"
        " to make space for others." + band,
        cluster.queue(study, found),
    )
    load = loads[-1]
    seed = study.typical_seed(workload, load)
    runs = [
        r for p in study.policies(workload) for r in study.of(workload, load, p) if r.seed == seed
    ]
    which = (
        f" Shown: {f'load {load}, ' if load else ''}seed {seed}, the one in the middle by the"
        " baseline's completion time."
        if many
        else f" Shown: load {load}."
        if load
        else ""
    )
    length = window(study, runs).length_s
    yield (
        "holders" + tail,
        "Who holds the GPUs",
        "Every block is a job. Its height is the number of its GPUs, its length the time for which"
        " it holds them. White GPUs are idle. All panels show the same jobs." + which,
        holders.holders(study, runs, length),
    )
    title = "GPUs in use, and what they cost" if cluster.priced(found) else "GPUs in use"
    yield (
        "use" + tail,
        title,
        "The space below the black line shows idle GPUs." + band + cut,
        cluster.use(study, found),
    )
    yield (
        "decisions" + tail,
        "Decisions",
        "Each point is a round. The gap says by how much the best plan could be better at most. For"
        " a policy that does not maximise the value, it shows how much value the policy gives up."
        + which,
        rounds.decisions(study, runs, length),
    )
    yield from node_figures(study, runs, length, tail)
