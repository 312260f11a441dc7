"""`allocator simulate`: simulate a workload under one or more policies, round by round."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.output import note, progress_console, warn
from allocator.cli.parsing import (
    add_effort,
    add_format,
    add_objective,
    add_settings,
    duration,
    number,
    parse_integer,
    words,
)
from allocator.domain.schema.columns import SIZES, SPEEDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.domain.workload import Workload
    from allocator.simulator import Simulation, SimulationOptions
    from allocator.simulator.run import OnRound

EXAMPLES = """
allocator simulate data/workloads/demo --policy mip,greedy
allocator simulate data/workloads/bursty --policy mip,greedy,las,srtf --out results
allocator simulate data/workloads/demo --policy mip --misjudged 0.3 --failures 0.01 --seed 7
"""
ABOUT = """\
Every policy gets the same jobs, machines and luck. With --out, results.json, jobs.csv,
timeline.csv, rounds.csv and spans.csv are written there, and a simulation that was killed goes on
where it was when the same command is given."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "simulate", examples=EXAMPLES, help="a trace under one or more policies", description=ABOUT
    )
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        nargs="?",
        help="folder with workload.csv, pools.csv, rates.csv ...; or a snapshot",
    )
    parser.add_argument(
        "--policy",
        type=words,
        nargs="+",
        action="extend",
        metavar="A,B",
        help="policies, with commas or blanks between (default: mip,greedy)",
    )
    add_objective(parser, "as config.toml says, else flow")
    add_settings(parser, "config.toml's", "budget")
    parser.add_argument(
        "--budget-average",
        type=number(),
        metavar="USD",
        help="US dollars per hour on average, reserved GPUs not counted, instead of [longrun]",
    )
    parser.add_argument(
        "--budget-amount",
        type=number(),
        metavar="USD",
        help="US dollars until --until, reserved GPUs not counted, instead of [longrun]",
    )
    parser.add_argument(
        "--budget-window",
        type=duration(1.0),
        metavar="TIME",
        help="length of the windows of an average, instead of config.toml's",
    )
    add_settings(parser, "config.toml's", "interval", "ageing", "horizon")
    parser.add_argument(
        "--react",
        type=duration(1e-3),
        default=math.inf,
        metavar="TIME",
        help="arrivals and completions cause early rounds, at least TIME after the one before",
    )
    parser.add_argument(
        "--announce",
        type=duration(infinite=True),
        default=0.0,
        metavar="TIME",
        help=(
            "changes of capacity.csv and prices.csv are in the snapshots TIME ahead; the"
            " policy horizon plans with them (default: 0, never)"
        ),
    )
    parser.add_argument(
        "--until",
        type=duration(infinite=True),
        default=math.inf,
        metavar="TIME",
        help="stop at this time on the clock of submitted_s",
    )
    parser.add_argument(
        "--prove",
        type=parse_integer(0),
        default=1,
        metavar="N",
        help=(
            "policies that decide without a bound get one in every N-th round, 0: never"
            " (default: 1)"
        ),
    )
    world = parser.add_argument_group("a world that is not as believed")
    world.add_argument(
        "--speeds",
        choices=SPEEDS,
        default="known",
        help=(
            "what policies know of speeds: the truth; a wrong profile, corrected while jobs run;"
            " or what they learn while jobs run (default: known)"
        ),
    )
    world.add_argument(
        "--misjudged",
        type=number(),
        default=0.0,
        metavar="SIGMA",
        help=(
            "true speed of a job on a GPU type / believed speed: log-normal with this sigma, mean 1"
        ),
    )
    world.add_argument(
        "--misjudged-sizes",
        type=number(),
        default=0.0,
        metavar="SIGMA",
        help="believed total_work / true: log-normal with this sigma, median 1",
    )
    world.add_argument(
        "--misjudged-slowdowns",
        type=number(),
        default=0.0,
        metavar="SIGMA",
        help=(
            "believed slowdown of two models on the same GPUs / true: log-normal with this sigma,"
            " mean 1; corrected while jobs run"
        ),
    )
    world.add_argument(
        "--sizes", choices=SIZES, help="what is known of sizes, instead of what config.toml says"
    )
    world.add_argument(
        "--losses",
        type=number(),
        metavar="SIGMA",
        help="jobs report losses with this noise, and what is left of them follows from these",
    )
    world.add_argument(
        "--noise", type=number(), default=0.0, metavar="SIGMA", help="the same, anew at every start"
    )
    world.add_argument(
        "--failures",
        type=number(),
        default=0.0,
        metavar="RATE",
        help="failures per GPU-hour; a job falls back to its last checkpoint",
    )
    world.add_argument(
        "--node-failures",
        type=number(),
        default=0.0,
        metavar="RATE",
        help="failures per node-hour of nodes.csv: all jobs of the node lose it",
    )
    world.add_argument(
        "--node-repair",
        type=duration(),
        default=3600.0,
        metavar="TIME",
        help="seconds until a node that failed is up again (default: 3600)",
    )
    world.add_argument(
        "--placement",
        choices=("repair", "wait"),
        default="repair",
        help=(
            "a job of a plan for which there are no nodes gets them by moves of others, or another"
            " option; or it waits, for comparisons (default: repair)"
        ),
    )
    world.add_argument(
        "--revocations",
        type=number(),
        default=1.0,
        metavar="F",
        help=(
            "spot GPUs are revoked at F times the pool's revocations_per_gpu_hour, 0: never"
            " (default: 1); pools in capacity.csv lose GPUs when that says so"
        ),
    )
    world.add_argument(
        "--spot-batch",
        type=number(1),
        default=1.0,
        metavar="N",
        help="mean number of GPUs that one revocation takes in a region in full use (default: 1)",
    )
    world.add_argument(
        "--spot-burst",
        type=number(1),
        default=1.0,
        metavar="F",
        help="revocations are F times as frequent in a server's first hour (default: 1)",
    )
    world.add_argument(
        "--startup-spread",
        type=number(),
        default=0.0,
        metavar="SIGMA",
        help="start-up of a server / startup_s of its pool: log-normal with this sigma, mean 1",
    )
    world.add_argument(
        "--victims",
        choices=("youngest", "random"),
        default="youngest",
        help="whose GPUs go when a pool shrinks (default: the last to start)",
    )
    world.add_argument(
        "--checkpoints",
        choices=("given", "young-daly"),
        default="given",
        help="every checkpoint_every_s, or at the best interval for the hazard (default: given)",
    )
    world.add_argument(
        "--latency",
        type=duration(),
        default=0.0,
        metavar="TIME",
        help="a plan comes true TIME after its round",
    )
    world.add_argument(
        "--charge-decisions",
        type=number(),
        default=0.0,
        metavar="F",
        help="and F times the seconds that it took to decide later (1: as measured)",
    )
    add_effort(parser, math.inf, "each decision")
    output = parser.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="folder of the results")
    add_format(output, "table", "json")
    output.add_argument(
        "--checkpoint",
        type=duration(),
        default=30.0,
        metavar="TIME",
        help=(
            "with --out: keep the state every TIME, so that the same command goes on after a "
            "kill (default: 30)"
        ),
    )
    output.add_argument(
        "--keep-snapshots",
        action="store_true",
        help="write every round as a snapshot with its plan: DIR/snapshots/POLICY/ROUND/",
    )
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator.errors import UsageError
    from allocator.policies import registry as policies
    from allocator.simulator import SimulationOptions

    if args.keep_snapshots and not args.out:
        raise UsageError("--keep-snapshots needs --out DIR")
    if args.keep_snapshots and args.placement == "wait":
        raise UsageError("--keep-snapshots needs --placement repair, as solve does")
    folder, chosen = _folder_and_policies(args.workload, args.policy)
    for i, name in enumerate(chosen):
        policies.policy(name)
        if name in chosen[:i]:
            raise UsageError(f'policy "{name}" is named twice')
    options = SimulationOptions(
        seed=args.seed,
        solver=args.solver,
        gap=args.gap,
        time_limit_s=args.time_limit,
        threads=args.threads,
        objective=args.objective,
        budget=args.budget,
        budget_average=args.budget_average,
        budget_amount=args.budget_amount,
        budget_window_s=args.budget_window,
        interval_s=args.interval,
        ageing_s=args.ageing,
        horizon=args.horizon,
        speeds=args.speeds,
        misjudged=args.misjudged,
        misjudged_sizes=args.misjudged_sizes,
        misjudged_slowdowns=args.misjudged_slowdowns,
        sizes=args.sizes,
        loss_noise=args.losses,
        noise=args.noise,
        failures_per_gpu_hour=args.failures,
        failures_per_node_hour=args.node_failures,
        node_repair_s=args.node_repair,
        placement=args.placement,
        revocations=args.revocations,
        spot_batch=args.spot_batch,
        spot_burst=args.spot_burst,
        startup_spread=args.startup_spread,
        victims=args.victims,
        checkpoints=args.checkpoints,
        latency_s=args.latency,
        latency_factor=args.charge_decisions,
        react_s=args.react,
        announce_s=args.announce,
        until_s=args.until,
        prove_every=args.prove,
    )

    out = Path(args.out) if args.out else None
    # reported now, not after a long simulation
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f'cannot write to "{out}": a file of that name is in the way')
    workload = _read(folder)
    warn(workload.problem.warnings)
    done = run_all(workload, chosen, options, out, args.keep_snapshots, args.checkpoint)
    if args.out:
        from allocator.simulator.results.files import write_simulations

        write_simulations(Path(args.out), workload.problem, options.seed, done)
        _remove_checkpoints(Path(args.out))
        if args.keep_snapshots:
            _tell_how_to_decide_again(Path(args.out), chosen, options)
    for s in done:
        if s.unfinished:
            some = ", ".join(s.unfinished[:5]) + (" ..." if len(s.unfinished) > 5 else "")
            jobs = "1 job was" if len(s.unfinished) == 1 else f"{len(s.unfinished)} jobs were"
            warn([f"{s.policy}: {jobs} never done: {some}"])
    _show(workload, done, options, args.format)
    return 0


def _read(folder: str) -> Workload:
    """Return the workload of a folder, or the one in which the jobs of a snapshot start anew."""
    from os.path import exists, join

    from allocator import Problem, read_workload

    if exists(join(folder, "workload.csv")) or not exists(join(folder, "jobs.csv")):
        return read_workload(folder)
    note(f'"{folder}" is a snapshot: each of its jobs starts anew with the work that it has left')
    return Problem.read(folder).to_workload()


def _folder_and_policies(
    workload: str | None, given: Sequence[Sequence[str]] | None
) -> tuple[str, tuple[str, ...]]:
    """Return the folder and the policies.

    If the folder comes after the policies, the parser has taken it for the last policy.
    """
    from allocator.errors import UsageError
    from allocator.policies.registry import POLICIES

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
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from allocator.simulator.checkpoint import CheckpointFile
    from allocator.simulator.run import SimulationState, continue_simulation, initial_state

    console, done = progress_console(), []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        for policy in policies:
            checkpoint_store = (
                None
                if out is None
                else CheckpointFile(out / ".state", workload, policy, options, checkpoint_s)
            )
            state = (
                initial_state(workload, policy, options)
                if checkpoint_store is None
                else checkpoint_store.state()
            )
            if state.rounds:
                console.print(f"{policy}: goes on after round {state.rounds}")
            elif checkpoint_store is not None and checkpoint_store.ignored:
                console.print(
                    f"{policy}: starts anew: the checkpoint there is damaged, or of another"
                    " workload, other options or another version",
                    soft_wrap=True,
                )
            row = bar.add_task(policy, total=1.0, what="")
            writers: list[OnRound] = []
            if snapshots and out is not None:
                from allocator.simulator.results.rounds import RoundFolders

                rounds = RoundFolders(out / "snapshots" / policy, options)
                if not state.rounds:
                    rounds.clear()
                writers.append(rounds.write)

            def each(
                state: SimulationState,
                turn: Any,
                row: Any = row,
                checkpoint_store: Any = checkpoint_store,
                writers: Any = writers,
            ) -> None:
                for write in writers:
                    write(state, turn)
                if checkpoint_store is not None:
                    checkpoint_store.keep(state)
                bar.update(
                    row,
                    completed=state.share,
                    what=f"round {turn.number + 1}, jobs here: {len(turn.problem.jobs)}",
                )

            try:
                done.append(continue_simulation(state, each))
                if checkpoint_store is not None:
                    checkpoint_store.keep(state, now=len(policies) > 1)
            # Ctrl-C, SIGTERM or a full disk: the caller reports which
            except BaseException:
                if out is not None:
                    note(_resume_command(checkpoint_store, policies, policy))
                raise
            bar.update(row, completed=1.0, what=f"{state.rounds} rounds")
    return done


def _resume_command(checkpoint_store: Any, policies: Sequence[str], policy: str) -> str:
    """Return from where the same command would continue."""
    finished = policies.index(policy)
    before = "" if not finished else f"{', '.join(policies[:finished])} kept, "
    if checkpoint_store.kept is None:
        return (
            f"{before}{policy}: no checkpoint yet; the same command starts"
            f" {'it ' if finished else ''}anew"
        )
    kept = checkpoint_store.kept
    return f"{before}{policy} kept after round {kept}: the same command goes on from there"


def _remove_checkpoints(out: Path) -> None:
    """Remove the checkpoints, which are not needed once the results are written."""
    import shutil

    shutil.rmtree(out / ".state", ignore_errors=True)


def _tell_how_to_decide_again(
    out: Path, policies: Sequence[str], options: SimulationOptions
) -> None:
    from shlex import quote

    effort = f"--gap {options.gap} --seed {options.seed} --solver {options.solver}"
    effort += f" --threads {options.threads}" if options.threads > 1 else ""
    for policy in policies:
        note(
            f"the same decisions again: allocator solve {quote(str(out / 'snapshots' / policy))}/* "
            f"--policy {policy} {effort}"
        )


def _show(
    workload: Workload, done: Sequence[Simulation], options: SimulationOptions, how: str
) -> None:
    from allocator.cli import tables
    from allocator.cli.measure.budget_words import budget_lines
    from allocator.cli.measure.comparison import comparison
    from allocator.simulator.results.files import results_json

    if how == "json":
        sys.stdout.write(
            results_json(workload.problem, options.seed, {s.policy: s.metrics for s in done})
        )
        return
    p = workload.problem
    pools = "1 pool" if len(p.pools) == 1 else f"{len(p.pools)} pools"
    head = [
        f"{tables.text(p.name)}: {len(p.jobs)} jobs, {int(p.pools.gpus.sum())} GPUs in {pools},"
        f" rounds of {options.interval_s or p.interval_s:g} s, objective"
        f" {options.objective or p.objective}"
    ]
    tables.show([comparison(done)], [*head, *(f"note: {warning}" for warning in p.warnings)])
    lines = list(budget_lines(p, options.budget_window_s, {s.policy: s.metrics for s in done}))
    tables.show([], ["", *lines] if lines else [])
