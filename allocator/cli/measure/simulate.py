"""`allocator simulate`: simulate a workload under one or more policies, round by round."""

import os
import shlex
import shutil
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from allocator import Problem, UsageError, Workload, read_workload
from allocator.cli.measure.comparison import comparison
from allocator.cli.output import Answer, Table, Values, note, progress_bar, text, warn
from allocator.cli.parsing import take
from allocator.domain.problem import Problem as RoundProblem
from allocator.market.books import RENTED, reserved_dollars
from allocator.market.longrun import WINDOW_S
from allocator.policies.base import POLICIES, policy as find_policy
from allocator.simulator import Simulation, SimulationOptions
from allocator.simulator.checkpoint import CheckpointFile
from allocator.simulator.results.files import results_json, write_simulations
from allocator.simulator.results.rounds import RoundFolders
from allocator.simulator.run import SimulationState, continue_simulation, initial_state

EXACT = 1e-6  # dollars: a smaller excess is rounding
HOUR = 3600.0


def simulate(args: Namespace) -> Answer:

    if args.keep_snapshots and not args.out:
        raise UsageError("--keep-snapshots needs --out DIR")
    if args.keep_snapshots and args.placement == "wait":
        raise UsageError("--keep-snapshots needs --placement repair, as solve does")
    folder, chosen = _folder_and_policies(args.workload, args.policy)
    for i, name in enumerate(chosen):
        find_policy(name)
        if name in chosen[:i]:
            raise UsageError(f'policy "{name}" is named twice')
    options = take(SimulationOptions, args)
    out = Path(args.out) if args.out else None
    # reported now, not after a long simulation
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f'cannot write to "{out}": a file of that name is in the way')
    workload = _read(folder)
    warn(workload.problem.warnings)
    done = run_all(workload, chosen, options, out, args.keep_snapshots, args.checkpoint)
    if args.out:
        write_simulations(Path(args.out), workload.problem, options.seed, done)
        # the checkpoints are not needed once the results are written
        shutil.rmtree(Path(args.out) / ".state", ignore_errors=True)
        if args.keep_snapshots:
            how = f"--gap {options.gap} --seed {options.seed} --solver {options.solver}"
            how += f" --threads {options.threads}" if options.threads > 1 else ""
            for name in chosen:
                snapshots = shlex.quote(str(Path(args.out, "snapshots", name)))
                again = f"allocator solve {snapshots}/* --policy {name} {how}"
                note(f"the same decisions again: {again}")
    for s in done:
        if s.unfinished:
            some = ", ".join(s.unfinished[:5]) + (" ..." if len(s.unfinished) > 5 else "")
            jobs = "1 job was" if len(s.unfinished) == 1 else f"{len(s.unfinished)} jobs were"
            warn([f"{s.policy}: {jobs} never done: {some}"])
    metrics = {s.policy: s.metrics for s in done}
    return Answer(
        lambda: results_json(workload.problem, options.seed, metrics),
        _show(workload, done, options, metrics),
    )


def _read(folder: str) -> Workload:
    """Return the workload of a folder, or the one in which the jobs of a snapshot start anew."""
    files = os.listdir(folder) if os.path.isdir(folder) else []
    if "workload.csv" in files or "jobs.csv" not in files:
        return read_workload(folder)
    note(f'"{folder}" is a snapshot: each of its jobs starts anew with the work that it has left')
    return Problem.read(folder).to_workload()


def _folder_and_policies(
    workload: str | None, given: Sequence[Sequence[str]] | None
) -> tuple[str, tuple[str, ...]]:
    """Return the folder and the policies.

    If the folder comes after the policies, the parser has taken it for the last policy.
    """
    words_ = list(given or ())
    if workload is None and words_ and not set(words_[-1]) <= set(POLICIES):
        workload = ",".join(words_.pop())
    if workload is None:
        raise UsageError(
            "simulate needs a WORKLOAD: a folder with workload.csv, such as data/workloads/demo"
        )
    return workload, tuple(name for some in words_ for name in some) or ("mip", "greedy")


def run_all(
    workload: Workload,
    policies: Sequence[str],
    options: SimulationOptions,
    out: Path | None,
    snapshots: bool = False,
    checkpoint_s: float = 30.0,
) -> list[Simulation]:
    """Simulate one policy after the other, with a bar on standard error.

    With `out`, a checkpoint is written every `checkpoint_s` wall seconds, and existing checkpoints
    are continued. If the simulation is interrupted, one line says how to continue.
    """
    done = []
    with progress_bar(is_counted=False) as bar:
        for policy in policies:
            store = folders = None
            if out is not None:
                store = CheckpointFile(out / ".state", workload, policy, options, checkpoint_s)
                folders = RoundFolders(out / "snapshots" / policy, options) if snapshots else None
            try:
                done.append(_run(workload, policy, options, bar, store, folders, len(policies) > 1))
            # Ctrl-C, SIGTERM or a full disk: the caller reports which
            except BaseException:
                if store is not None:
                    note(_resume_command(store, policies, policy))
                raise
    return done


def _run(
    workload: Workload,
    policy: str,
    options: SimulationOptions,
    bar: Any,
    store: CheckpointFile | None,
    folders: RoundFolders | None,
    is_kept: bool,
) -> Simulation:
    """Simulate one policy from its checkpoint; `is_kept`: keep its last state, too."""
    state = initial_state(workload, policy, options) if store is None else store.state()
    if state.rounds:
        note(f"{policy}: goes on after round {state.rounds}")
    else:
        if store is not None and store.ignored:
            note(
                f"{policy}: starts anew: the checkpoint there is damaged, or of another workload,"
                " other options or another version"
            )
        if folders is not None:
            folders.clear()
    row = bar.add_task(policy, total=1.0)

    def each(state: SimulationState, turn: Any) -> None:
        if folders is not None:
            folders.write(state, turn)
        if store is not None:
            store.keep(state)
        what = f"{policy}: round {turn.number + 1}, jobs here: {len(turn.problem.jobs)}"
        bar.update(row, completed=state.share, description=what)

    simulation = continue_simulation(state, each)
    if store is not None:
        store.keep(state, now=is_kept)
    bar.update(row, completed=1.0, description=f"{policy}: {state.rounds} rounds")
    return simulation


def _resume_command(store: CheckpointFile, policies: Sequence[str], policy: str) -> str:
    """Return from where the same command would continue."""
    finished = policies[: policies.index(policy)]
    before = f"{', '.join(finished)} kept, " if finished else ""
    if store.kept is None:
        it = "it " if finished else ""
        return f"{before}{policy}: no checkpoint yet; the same command starts {it}anew"
    return f"{before}{policy} kept after round {store.kept}: the same command goes on from there"


def _show(
    workload: Workload,
    done: Sequence[Simulation],
    options: SimulationOptions,
    metrics: Mapping[str, Values],
) -> Iterator[str | Table]:
    p = workload.problem
    pools = "1 pool" if len(p.pools) == 1 else f"{len(p.pools)} pools"
    yield (
        f"{text(p.name)}: {len(p.jobs)} jobs, {int(p.pools.gpus.sum())} GPUs in {pools},"
        f" rounds of {options.interval_s or p.interval_s:g} s, objective"
        f" {options.objective or p.objective}"
    )
    yield from (f"note: {warning}" for warning in p.warnings)
    yield comparison(done)
    lines = list(budget_lines(p, options.budget_window_s, metrics))
    yield from ["", *lines] if lines else []


def budget_lines(
    problem: RoundProblem, window_s: float | None, policies: Mapping[str, Values]
) -> Iterator[str]:
    """Yield a line per policy and budget, and what is not billed.

    There are no lines without a long-run budget.

    Parameters
    ----------
    problem : of the workload.
    window_s : the window that was asked for instead of that of the workload.
    policies : metrics by policy.
    """
    window_s = window_s or float(problem.settings.get("longrun", {}).get("window_s", WINDOW_S))
    why = _limits(problem)
    lines = [
        _line(policy, tenant, budget, window_s, why)
        for policy, metrics in policies.items()
        for tenant, budget in metrics.get("longrun", {}).items()
    ]
    yield from lines
    reserved = reserved_dollars(problem)
    if lines and reserved > 0:
        yield (
            f"Reserved GPUs are paid for anyway, {text(reserved)} $/h here, and not booked on"
            ' these budgets; "US dollars" above counts them while they are used.'
        )


def _limits(problem: RoundProblem) -> str:
    """Return why a round of this problem may spend more than the budget leaves.

    See apply_books in market/books.py.
    """
    why = ["GPUs are paid for until the round that gives them back"]
    if reserved_dollars(problem) > 0:
        why.append(
            "the limit of a round adds the price of all reserved GPUs, and where some of them stand"
            " idle others are rented for it"
        )
    if (
        not problem.jobs.preemptible.all()
        or problem.max_changes >= 0
        or problem.tenants.guaranteed_gpus.any()
    ):
        why.append("jobs that may not be changed and guaranteed GPUs are served in any case")
    return "; ".join(why[::-1])


def _line(policy: str, tenant: str, budget: Values, window_s: float, why: str) -> str:
    hours = max(budget["at_s"] - budget["opened_s"], 1e-9) / HOUR
    asked = (
        f"{text(budget['average_per_hour'])} $/h on average"
        if budget["amount"] is None
        else f"{text(budget['amount'])} $ until {text(budget['until_s'])} s"
    )
    spent = (
        f"{text(budget['spent'] / hours)} $/h spent over {text(hours)} h"
        f" ({text(budget['spent'])} $)"
    )
    whose = f"budget of {tenant}" if tenant else "budget"
    return f"{whose}, {policy}: {asked} asked {RENTED}, {spent}: {_verdict(budget, window_s, why)}."


def _verdict(budget: Values, window_s: float, why: str) -> str:
    if budget["amount"] is not None:
        over = budget["spent"] - budget["amount"]
        return "kept" if over <= EXACT else f"not kept, {text(over)} $ too much: {why}"
    if budget["balance"] >= -EXACT:
        return "kept"
    if budget["most_per_hour"] is None:  # of [rental]: no round has a limit
        return f"{text(-budget['balance'])} $ overdrawn, which later plans would repay"
    passed = budget["at_s"] - budget["opened_s"]
    if passed < window_s:
        return (
            f"{text(-budget['balance'])} $ overdrawn so far. It is kept over windows of"
            f" {text(window_s / HOUR)} h, and may be overdrawn until one ends; --budget-window"
            f" {max(1.0, passed):.0f} ends one with the simulation"
        )
    return f"not kept, {text(-budget['balance'])} $ too much: {why}"
