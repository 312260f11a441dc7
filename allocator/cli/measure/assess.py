"""`allocator assess`: a site's past replayed, to see what this allocator would change."""

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allocator import read_workload
from allocator.bench.assess.assessing import (
    MOST_USE,
    MOST_WAITING,
    PRESENT,
    RIGID,
    Question,
    assess as find_answer,
)
from allocator.cli.output import Answer, Table, Values, note, progress_bar, warn
from allocator.cli.parsing import take
from allocator.io.plans import dumps, write_files
from allocator.report import assessment
from allocator.report.measures import interval, number, percent, time_unit

COLUMNS = (
    "",
    "mean waiting",
    "50 %",
    "90 %",
    "99 %",
    "mean completion",
    "GPUs in use",
    "waiting against yours",
    "completion against yours",
    "fewest GPUs",
)
TIMES = ("waiting_s_mean", "waiting_s_p50", "waiting_s_p90", "waiting_s_p99", "completion_s_mean")

LONGER = (
    "The record has longer waits than the GPUs and the queue explain: limits, nodes, other"
    " resources or start-up may be missing from the history."
)
SHORTER = (
    "The record has shorter waits: the site may have had more GPUs than the history, or another"
    " order of its queue."
)


def assess(args: Namespace) -> Answer:
    workload = read_workload(args.history)
    warn(workload.problem.warnings)
    with progress_bar(is_counted=False) as bar:
        row = bar.add_task("", total=1.0)
        document = find_answer(
            workload,
            take(Question, args),
            lambda what, share: bar.update(row, description=what, completed=share),
        )
    intervals = (
        f"In brackets: 95 % interval by resampled {document['resampled']}s of submission."
        if document["resampled"]
        else "No intervals: the history is shorter than two days."
    )
    paragraphs = [*sentences(document), intervals]
    rows = _rows(document)
    if args.out:
        each = zip(rows, document["cases"], strict=True)
        pages = [(*row, "; ".join(case["assuming"])) for row, case in each]
        answer = assessment.Answer(paragraphs, (*COLUMNS, "assuming"), pages)
        page = assessment.write_assessment(document, answer, Path(args.out))
        write_files(page.parent, {"assessment.json": dumps(document)})
        note(f"written to {args.out}: {page.name}, assessment.json")
    names, *lines = zip(*rows, strict=True)
    table = Table(
        f"{document['history']}: {document['jobs']:,} jobs, {document['gpus']:,} GPUs",
        ("", *(f">{name}" for name in names)),
        [(column, *line) for column, line in zip(COLUMNS[1:], lines, strict=True)],
    )
    assuming = (f"{c['name']} assumes: {'; '.join(c['assuming'])}" for c in document["cases"])
    return Answer(document, [*paragraphs, table, "", *assuming])


def sentences(document: Values) -> list[str]:
    """Return the answer: what changes, whether that is to be believed, and what both assume."""
    return [_answer(document), _belief(document), f"Assumed: {'; '.join(document['assuming'])}."]


def _answer(document: Values) -> str:
    by = {case["name"]: case for case in document["cases"]}
    rigid, gpus = by[RIGID], document["gpus"]
    before, after = (_time(by[n]["figures"]["waiting_s_mean"]) for n in (PRESENT, RIGID))
    fewest = rigid["fewest_gpus"][1]
    service = (
        f"and {fewest:,} of the {gpus:,} GPUs would be enough for the service of today"
        if fewest < gpus
        else f"and the service of today takes {_gpus(fewest, gpus)} GPUs"
    )
    doubt = "" if (document["calibration"] or {}).get("believed") else "Not to be believed as yet: "
    return (
        f"{doubt}{'with' if doubt else 'With'} every job at the size it asked for, these"
        f" {document['jobs']:,} jobs would wait {after} on average in place of {before} under"
        f" your scheduler, simulated ({_change(rigid['change_percent']['waiting_s'])}), {service}."
    )


def _belief(document: Values) -> str:
    """Say in a sentence whether forecasts are to be believed, and why."""
    seen = document["calibration"]
    if seen is None:
        return (
            "Whether forecasts are to be believed is not known: the history does not record when"
            " its jobs started and ended (recorded_start_s, recorded_end_s)."
        )
    waits = (
        _time([seen["simulated"]["waiting_s_mean"]] * 2),
        _time([seen["recorded"]["waiting_s_mean"]] * 2),
    )
    waiting = (
        f"mean waiting is {waits[0]} simulated and {waits[1]} recorded"
        f" ({percent(seen['waiting_percent'])} %)"
    )
    use = (
        f"the GPUs in use are {100 * seen['simulated']['use']:.1f} % simulated and"
        f" {100 * seen['recorded']['use']:.1f} % recorded"
    )
    if seen["believed"]:
        return f"Forecasts are to be believed: {waiting}, and {use}."
    most = f"{100 * MOST_WAITING:g} % of waiting and {100 * MOST_USE:g} points of use are allowed"
    where = f", the most in {seen['largest_in']}" if seen["largest_in"] else ""
    why = f"{waiting}{where}" if seen["largest"] == "waiting" else use
    cause = LONGER if seen["waiting_percent"] < 0 else SHORTER
    return f"Forecasts are not to be believed: {why}; {most}. {cause}"


def _rows(document: Values) -> list[tuple[str, ...]]:
    """Return a row for each case under COLUMNS."""
    return [
        (
            case["name"],
            *(_time(case["figures"][key]) for key in TIMES),
            f"{_span(case['figures']['use'], lambda v: f'{100 * v:.1f}')} %",
            *(
                _change(case["change_percent"][key]) if "fewest_gpus" in case else "–"
                for key in ("waiting_s", "completion_s")
            ),
            _span(case["fewest_gpus"], lambda v: _gpus(v, document["gpus"]))
            if "fewest_gpus" in case
            else "–",
        )
        for case in document["cases"]
    ]


def _gpus(fewest: float, gpus: int) -> str:
    if fewest > gpus:
        return f"more than {gpus:,}"
    return f"all {gpus:,}" if fewest == gpus else f"{fewest:,.0f}"


def _change(change: Mapping[str, Sequence[float]]) -> str:
    low, high = change["interval"]
    between = "" if math.isnan(low) else f" {interval(low, high)}"
    changed = change["percent"]
    return "–" if math.isnan(changed[0]) else f"{_span(changed, percent)} %{between}"


def _time(values: Sequence[float]) -> str:
    name, size = time_unit(values[1:])
    return f"{_span(values, lambda v: number(v / size))} {name}"


def _span(values: Sequence[Any], text: Any) -> str:
    low, high = map(text, values)
    return low if low == high else f"{low} to {high}"
