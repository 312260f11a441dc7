"""`allocator simulate`: simulate a workload under one or more policies, round by round."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.output import note, progress_bar, warn
from allocator.cli.parsing import (
    command,
    duration,
    effort,
    flag,
    formats,
    group,
    number,
    objective,
    option,
    parse_integer,
    settings,
    take,
    words,
)
from allocator.cli.tables import show, text
from allocator.domain.schema.columns import SIZES, SPEEDS
from allocator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress

    from allocator.domain.workload import Workload
    from allocator.simulator import Simulation, SimulationOptions
    from allocator.simulator.checkpoint import CheckpointFile
    from allocator.simulator.results.rounds import RoundFolders

EXAMPLES = """
allocator simulate data/workloads/demo --policy mip,greedy
allocator simulate data/workloads/bursty --policy mip,greedy,las,srtf --out results
allocator simulate data/workloads/demo --policy mip --misjudged 0.3 --failures 0.01 --seed 7
"""
ABOUT = """\
Every policy gets the same jobs, machines and luck. With --out, results.json, jobs.csv,
timeline.csv, rounds.csv and spans.csv are written there, and a simulation that was killed goes on
where it was when the same command is given."""


OPTIONS = (
    objective("as config.toml says, else flow"),
    *settings("config.toml's", "budget", "interval", "ageing", "horizon"),
    option(
        "--react",
        "TIME",
        "arrivals and completions cause early rounds, at least TIME after the one before",
        duration(1e-3),
        math.inf,
        dest="react_s",
    ),
    option(
        "--announce",
        "TIME",
        "changes of capacity.csv and prices.csv are in the snapshots TIME ahead; the"
        " policy horizon plans with them (default: 0, never)",
        duration(infinite=True),
        0.0,
        dest="announce_s",
    ),
    option(
        "--prove",
        "N",
        "policies that decide without a bound get one in every N-th round, 0: never (default: 1)",
        parse_integer(0),
        1,
        dest="prove_every",
    ),
)
"""How rounds are decided, as in a benchmark of policies."""
WORLD = (
    option(
        "--speeds",
        None,
        "what policies know of speeds: the truth; a wrong profile, corrected while jobs run;"
        " or what they learn while jobs run (default: known)",
        default="known",
        choices=SPEEDS,
    ),
    option(
        "--misjudged",
        "SIGMA",
        "true speed of a job on a GPU type / believed speed: log-normal with this sigma, mean 1",
        number(),
        0.0,
    ),
    option(
        "--misjudged-sizes",
        "SIGMA",
        "believed total_work / true: log-normal with this sigma, median 1",
        number(),
        0.0,
    ),
    option(
        "--misjudged-slowdowns",
        "SIGMA",
        "believed slowdown of two models on the same GPUs / true: log-normal with this sigma,"
        " mean 1; corrected while jobs run",
        number(),
        0.0,
    ),
    option(
        "--sizes",
        None,
        "what is known of sizes, instead of what config.toml says",
        choices=SIZES,
    ),
    option(
        "--losses",
        "SIGMA",
        "jobs report losses with this noise, and what is left of them follows from these",
        number(),
        dest="loss_noise",
    ),
    option("--noise", "SIGMA", "the same, anew at every start", number(), 0.0),
    option(
        "--failures",
        "RATE",
        "failures per GPU-hour; a job falls back to its last checkpoint",
        number(),
        0.0,
        dest="failures_per_gpu_hour",
    ),
    option(
        "--latency",
        "TIME",
        "a plan comes true TIME after its round",
        duration(),
        0.0,
        dest="latency_s",
    ),
    option(
        "--charge-decisions",
        "F",
        "and F times the seconds that it took to decide later (1: as measured)",
        number(),
        0.0,
        dest="latency_factor",
    ),
)
"""Where the world is not as believed, as in a benchmark of policies."""


@command(
    "simulate",
    "a trace under one or more policies",
    ABOUT,
    EXAMPLES,
    option(
        "workload",
        "WORKLOAD",
        "folder with workload.csv, pools.csv, rates.csv ...; or a snapshot",
        nargs="?",
    ),
    option(
        "--policy",
        "A,B",
        "policies, with commas or blanks between (default: mip,greedy)",
        words,
        nargs="+",
        action="extend",
    ),
    *OPTIONS,
    option(
        "--budget-average",
        "USD",
        "US dollars per hour on average, reserved GPUs not counted, instead of [longrun]",
        number(),
    ),
    option(
        "--budget-amount",
        "USD",
        "US dollars until --until, reserved GPUs not counted, instead of [longrun]",
        number(),
    ),
    option(
        "--budget-window",
        "TIME",
        "length of the windows of an average, instead of config.toml's",
        duration(1.0),
        dest="budget_window_s",
    ),
    option(
        "--until",
        "TIME",
        "stop at this time on the clock of submitted_s",
        duration(infinite=True),
        math.inf,
        dest="until_s",
    ),
    group(
        "a world that is not as believed",
        *WORLD,
        option(
            "--node-failures",
            "RATE",
            "failures per node-hour of nodes.csv: all jobs of the node lose it",
            number(),
            0.0,
            dest="failures_per_node_hour",
        ),
        option(
            "--node-repair",
            "TIME",
            "seconds until a node that failed is up again (default: 3600)",
            duration(),
            3600.0,
            dest="node_repair_s",
        ),
        option(
            "--placement",
            None,
            "a job of a plan for which there are no nodes gets them by moves of others, or another"
            " option; or it waits, for comparisons (default: repair)",
            default="repair",
            choices=("repair", "wait"),
        ),
        option(
            "--revocations",
            "F",
            "spot GPUs are revoked at F times the pool's revocations_per_gpu_hour, 0: never"
            " (default: 1); pools in capacity.csv lose GPUs when that says so",
            number(),
            1.0,
        ),
        option(
            "--spot-batch",
            "N",
            "mean number of GPUs that one revocation takes in a region in full use (default: 1)",
            number(1),
            1.0,
        ),
        option(
            "--spot-burst",
            "F",
            "revocations are F times as frequent in a server's first hour (default: 1)",
            number(1),
            1.0,
        ),
        option(
            "--startup-spread",
            "SIGMA",
            "start-up of a server / startup_s of its pool: log-normal with this sigma, mean 1",
            number(),
            0.0,
        ),
        option(
            "--victims",
            None,
            "whose GPUs go when a pool shrinks (default: the last to start)",
            default="youngest",
            choices=("youngest", "random"),
        ),
        option(
            "--checkpoints",
            None,
            "every checkpoint_every_s, or at the best interval for the hazard (default: given)",
            default="given",
            choices=("given", "young-daly"),
        ),
    ),
    effort(math.inf, "each decision"),
    group(
        "output",
        option("--out", "DIR", "folder of the results"),
        formats("table", "json"),
        option(
            "--checkpoint",
            "TIME",
            "with --out: keep the state every TIME, so that the same command goes on after a kill"
            " (default: 30)",
            duration(),
            30.0,
        ),
        flag(
            "--keep-snapshots",
            "write every round as a snapshot with its plan: DIR/snapshots/POLICY/ROUND/",
        ),
    ),
)
def call(args: argparse.Namespace) -> int:
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
    options = take(SimulationOptions, args)
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
        # the checkpoints are not needed once the results are written
        shutil.rmtree(Path(args.out) / ".state", ignore_errors=True)
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
    from allocator import Problem, read_workload

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
    from allocator.simulator.checkpoint import CheckpointFile
    from allocator.simulator.results.rounds import RoundFolders

    done = []
    with progress_bar(is_counted=False) as bar:
        for policy in policies:
            if out is None:
                done.append(_run(workload, policy, options, bar))
                continue
            store = CheckpointFile(out / ".state", workload, policy, options, checkpoint_s)
            folders = RoundFolders(out / "snapshots" / policy, options) if snapshots else None
            try:
                done.append(_run(workload, policy, options, bar, store, folders, len(policies) > 1))
            # Ctrl-C, SIGTERM or a full disk: the caller reports which
            except BaseException:
                note(_resume_command(store, policies, policy))
                raise
    return done


def _run(
    workload: Workload,
    policy: str,
    options: SimulationOptions,
    bar: Progress,
    store: CheckpointFile | None = None,
    folders: RoundFolders | None = None,
    is_kept: bool = False,
) -> Simulation:
    """Simulate one policy from its checkpoint; `is_kept`: keep its last state, too."""
    from allocator.simulator.run import SimulationState, continue_simulation, initial_state

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

    found = continue_simulation(state, each)
    if store is not None:
        store.keep(state, now=is_kept)
    bar.update(row, completed=1.0, description=f"{policy}: {state.rounds} rounds")
    return found


def _resume_command(store: CheckpointFile, policies: Sequence[str], policy: str) -> str:
    """Return from where the same command would continue."""
    finished = policies[: policies.index(policy)]
    before = f"{', '.join(finished)} kept, " if finished else ""
    if store.kept is None:
        it = "it " if finished else ""
        return f"{before}{policy}: no checkpoint yet; the same command starts {it}anew"
    return f"{before}{policy} kept after round {store.kept}: the same command goes on from there"


def _tell_how_to_decide_again(
    out: Path, policies: Sequence[str], options: SimulationOptions
) -> None:
    how = f"--gap {options.gap} --seed {options.seed} --solver {options.solver}"
    how += f" --threads {options.threads}" if options.threads > 1 else ""
    for policy in policies:
        folder = shlex.quote(str(out / "snapshots" / policy))
        note(f"the same decisions again: allocator solve {folder}/* --policy {policy} {how}")


def _show(
    workload: Workload, done: Sequence[Simulation], options: SimulationOptions, how: str
) -> None:
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
        f"{text(p.name)}: {len(p.jobs)} jobs, {int(p.pools.gpus.sum())} GPUs in {pools},"
        f" rounds of {options.interval_s or p.interval_s:g} s, objective"
        f" {options.objective or p.objective}"
    ]
    show([comparison(done)], [*head, *(f"note: {warning}" for warning in p.warnings)])
    lines = list(budget_lines(p, options.budget_window_s, {s.policy: s.metrics for s in done}))
    show([], ["", *lines] if lines else [])
