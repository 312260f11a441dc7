"""What a shadow saw in words: the answer in sentences, and the rows of its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.domain.times import format_time
from allocator.report.measures import duration, number, percent

COLUMNS = ("", "figure", "assuming")


def sentences(found: Mapping[str, Any]) -> list[str]:
    """Return the answer, and what it rests on."""
    looks = (
        f"{found['rounds']:,} rounds from {format_time(found['from_s'])} to"
        f" {format_time(found['to_s'])} UTC, {found['gaps']:,} gaps in which the cluster could not"
        f" be seen, {found['faults']:,} faults that could not be decided."
    )
    if not found["rounds"]:
        return ["No look was decided yet, so nothing is known.", looks]
    worth = found["regret_percent"]
    value = "" if worth is None else f" ({percent(worth)} % over all)"
    return [
        f"In {duration(3600 * found['hours'])} beside {found['cluster']},"
        f" {_share(found, 'usable')} were idle although waiting jobs could have used them,"
        f" {_jobs(found)} waited while others of lower value ran, and decisions made"
        f" here would have been worth more in {found['regretted']:,} of {found['rounds']:,}"
        f" rounds{value}.",
        looks,
    ]


def rows(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of the table under COLUMNS; the last cell says what a figure assumes."""
    dollars = found["usable_dollars"]
    longest = ", ".join(
        f"{job} {duration(3600 * hours)}" for job, hours in found["longest_passed_over"].items()
    )
    regret, bound = (
        "–" if found[name] is None else f"{percent(found[name])} %"
        for name in ("regret_percent", "bound_percent")
    )
    return [
        (
            "GPU-hours in use",
            _share(found, "used"),
            "a look stands for the time until the next, at most two intervals"
            f" ({duration(found['every_s'])} each); {duration(3600 * found['unseen_hours'])} were"
            " not seen and do not count",
        ),
        (
            "GPU-hours idle while jobs waited that could have used them",
            _share(found, "usable"),
            "jobs start oldest first on what is idle, within quotas and budgets, and nothing that"
            " runs is stopped; a job that the cluster starts just after a look counts as waiting",
        ),
        (
            "what these cost",
            "not known" if dollars is None else f"{number(dollars)} $",
            "no pool has a price" if dollars is None else "prices of the pools",
        ),
        (
            "jobs that waited while others of lower value ran",
            f"{_jobs(found)}, together {duration(3600 * found['passed_over_hours'])}",
            "value in the objective, on no more GPUs than one running job of the pool has, whether"
            " or not that job may be stopped",
        ),
        ("the longest of them", longest or "–", "hours in which that was so"),
        (
            "value of the decisions above that of what the cluster did",
            f"{regret}, no plan more than {bound}",
            f"policy {'; '.join(found['policies'])}; each round starts from what the cluster had"
            " made of those before, so that regrets of rounds do not add up",
        ),
        (
            "jobs of one size only",
            f"{found['rigid_percent']:.0f} %",
            "taken as rigid, as neither they nor the site say other sizes; all decisions keep them"
            " so",
        ),
        (
            "jobs at an assumed speed",
            f"{found['assumed_percent']:.0f} %",
            "their model has no rate; where nobody states their work, their time limit counts",
        ),
        (
            "rounds in which the cluster broke a rule of the snapshot",
            f"{found['broken']:,}",
            "no plan here breaks one, so that the value may be lower",
        ),
    ]


def _jobs(found: Mapping[str, Any]) -> str:
    count = found["passed_over"]
    return f"{count:,} job{'s' * (count != 1)}"


def _share(found: Mapping[str, Any], name: str) -> str:
    part, whole = (found[f"{n}_gpu_hours"] for n in (name, "gpus"))
    return f"{number(part)} of {number(whole)} GPU-hours ({100 * part / max(whole, 1e-9):.1f} %)"
