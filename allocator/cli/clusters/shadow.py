"""`allocator shadow`: what would have been decided beside a live cluster, and its worth."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from allocator import UsageError
from allocator.bench.shadow.record import ROUND, Look, Record, summarise
from allocator.bench.shadow.watching import Watch, observer
from allocator.cli.clusters.look import read_request
from allocator.cli.output import Answer, Table, Values, note
from allocator.cli.queue.run import stop_on_signals
from allocator.controller.clock import WallClock
from allocator.domain.times import format_time
from allocator.report import assessment
from allocator.report.measures import duration, number, percent

COLUMNS = ("", "figure", "assuming")


def watch(args: Namespace) -> int:
    observe = observer(args.cluster, read_request(args), [Path(name) for name in args.add])
    clock, shown = WallClock(), set[str]()

    def tell(look: Look, notes: Sequence[str]) -> None:
        note(*(f"note: {line}" for line in notes if line not in shown), _describe(look))
        shown.update(notes)

    going = Watch(
        Record(Path(args.record)), args.cluster, observe, clock, args.every, args.policy, tell
    )
    with stop_on_signals(going, clock.wake):
        decided = going.run(args.rounds)
    return 0 if decided or going.stopping else 1


def _describe(look: Look) -> str:
    begin = f"{format_time(look.at_s)} {look.kind} {look.number}: "
    if look.kind != ROUND:
        return f"{begin}{look.said}"
    figures = look.said
    return (
        f"{begin}value {figures['value']:.6g}, at most {figures['bound']:.6g}, the cluster"
        f" {figures['cluster_value']:.6g}; {figures['usable']} idle GPUs could be used"
    )


def report(args: Namespace) -> Answer:
    path = Path(args.record)
    if not path.exists():
        raise UsageError(f'there is no record "{path}"; "allocator shadow watch" makes one')
    summary = summarise(Record(path).looks())
    lines, rows = _sentences(summary), _rows(summary)
    if args.out:
        answer = assessment.Answer(lines, COLUMNS, rows)
        note(f"written to {assessment.write_shadow(summary, answer, Path(args.out))}")
    return Answer(
        summary, [*lines, Table(f"beside {summary['cluster']}", COLUMNS, rows)], summary["looks"]
    )


def _sentences(summary: Values) -> list[str]:
    """Return the answer, and what it rests on."""
    looks = (
        f"{summary['rounds']:,} rounds from {format_time(summary['from_s'])} to"
        f" {format_time(summary['to_s'])} UTC, {summary['gaps']:,} gaps in which the cluster could"
        f" not be seen, {summary['faults']:,} faults that could not be decided."
    )
    if not summary["rounds"]:
        return ["No look was decided yet, so nothing is known.", looks]
    worth = summary["regret_percent"]
    value = "" if worth is None else f" ({percent(worth)} % over all)"
    return [
        f"In {duration(3600 * summary['hours'])} beside {summary['cluster']},"
        f" {_share(summary, 'usable')} were idle although waiting jobs could have used them,"
        f" {_jobs(summary)} waited while others of lower value ran, and decisions made"
        f" here would have been worth more in {summary['regretted']:,} of {summary['rounds']:,}"
        f" rounds{value}.",
        looks,
    ]


def _rows(summary: Values) -> list[tuple[str, str, str]]:
    """Return the rows of the table under COLUMNS; the last cell says what a figure assumes."""
    dollars = summary["usable_dollars"]
    longest = ", ".join(
        f"{job} {duration(3600 * hours)}" for job, hours in summary["longest_passed_over"].items()
    )
    regret, bound = (
        "–" if summary[name] is None else f"{percent(summary[name])} %"
        for name in ("regret_percent", "bound_percent")
    )
    return [
        (
            "GPU-hours in use",
            _share(summary, "used"),
            "a look stands for the time until the next, at most two intervals"
            f" ({duration(summary['every_s'])} each); {duration(3600 * summary['unseen_hours'])} "
            "were not seen and do not count",
        ),
        (
            "GPU-hours idle while jobs waited that could have used them",
            _share(summary, "usable"),
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
            f"{_jobs(summary)}, together {duration(3600 * summary['passed_over_hours'])}",
            "value in the objective, on no more GPUs than one running job of the pool has, whether"
            " or not that job may be stopped",
        ),
        ("the longest of them", longest or "–", "hours in which that was so"),
        (
            "value of the decisions above that of what the cluster did",
            f"{regret}, no plan more than {bound}",
            f"policy {'; '.join(summary['policies'])}; each round starts from what the cluster had"
            " made of those before, so that regrets of rounds do not add up",
        ),
        (
            "jobs of one size only",
            f"{summary['rigid_percent']:.0f} %",
            "taken as rigid, as neither they nor the site say other sizes; all decisions keep them"
            " so",
        ),
        (
            "jobs at an assumed speed",
            f"{summary['assumed_percent']:.0f} %",
            "their model has no rate; where nobody states their work, their time limit counts",
        ),
        (
            "rounds in which the cluster broke a rule of the snapshot",
            f"{summary['broken']:,}",
            "no plan here breaks one, so that the value may be lower",
        ),
    ]


def _jobs(summary: Values) -> str:
    count = summary["passed_over"]
    return f"{count:,} job{'s' * (count != 1)}"


def _share(summary: Values, name: str) -> str:
    part, whole = (summary[f"{n}_gpu_hours"] for n in (name, "gpus"))
    return f"{number(part)} of {number(whole)} GPU-hours ({100 * part / max(whole, 1e-9):.1f} %)"
