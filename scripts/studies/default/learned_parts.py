"""The parts of the default where nobody knows, each one left out, alone, or changed.

A part is left out by a patch of the product for the time of one simulation.

    spread pauses      the pause of a change counts in one round only
    concave value      a job of which nothing is known is valued linearly in its guessed size
    exponential rest   what is expected of the work left counts as if it were certain
    steadiness         of near-ties the plan that changes nothing is not preferred
    sizes of others    what is left is guessed from the job's own work so far only
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from allocator.performance import sizes as estimates
from allocator.performance.fit import feedback
from allocator.policies import mip
from allocator.policies.base import Task
from formulations.model.linear import Ints
from formulations.objectives import flow, response
from formulations.objectives.context import Context
from scripts.studies.default.likely_gains import likely_gains
from scripts.studies.default.replacing import replaced, unaudited

DEFAULT = "the default"
WRONG = "speeds: noisy, wrong by 100%"
LEARN = estimates.learned_remaining
CORRECT = feedback.correct_model
SPREAD, CONCAVE, EXPONENTIAL, STEADY, OTHERS = (
    "spread pauses",
    "concave value",
    "exponential rest",
    "steadiness",
    "sizes of others",
)
ALL = (SPREAD, CONCAVE, EXPONENTIAL, STEADY, OTHERS)
Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Part:
    """The default with something changed by a patch or by options; `against` names its base."""

    name: str
    objective: str = "flow"
    options: Mapping[str, Any] = field(default_factory=dict)
    patch: Patch | None = None
    against: str = DEFAULT


def guess_alone(model: Any, done: Any, least: Any, finished: Any) -> Any:
    """Return what is expected of jobs that learn nothing from others."""
    return done + least


def guess_with_finished(model: Any, done: Any, least: Any, finished: Any) -> Any:
    """Return what is expected of jobs that learn from finished jobs of their model only."""
    own = np.arange(len(model))
    alone = estimates.Finished(np.zeros(0, dtype=np.int64), np.zeros(0))
    out = done + least
    for m in np.unique(model).tolist():
        work = finished.total_work[finished.model == m]
        for j in own[model == m].tolist():
            one = slice(j, j + 1)
            known = alone if not len(work) else estimates.Finished(np.zeros(len(work), int), work)
            out[one] = LEARN(np.zeros(1, dtype=np.int64), done[one], least[one], known)
    return out


def hours_saved_if_certain(c: Context, work_price: Any) -> Any:
    """Return the hours (n,) that options save if what is expected of sizes comes true."""
    return response.hours_saved(c, work_price, c.lasting_work)


def find_starts_afresh(task: Task) -> tuple[Task, Ints, bool, Ints | None]:
    """Return the starts of `mip` as if the plan that changes nothing were not allowed."""
    task, plan = mip._best_known_plan(task, None)
    return task, task.round.unchanged_choice(), False, plan


def correct_without_doubt(seen: Any, offered: Any, now_s: float) -> Any:
    """Return the corrections of a model, none of GPU types on which it never ran."""
    return CORRECT(seen, {kind: offered[kind] for kind in seen}, now_s)


@contextmanager
def without(*lacks: str) -> Iterator[None]:
    """Leave parts out for a while."""
    owners: list[tuple[Any, str, Any]] = []
    if SPREAD in lacks:
        owners.append((Context, "lasting_work", Context.work_now))
    if EXPONENTIAL in lacks:
        owners.append((flow, "hours_saved", hours_saved_if_certain))
    if STEADY in lacks:
        owners.append((mip, "_find_starts", find_starts_afresh))
    if OTHERS in lacks:
        owners.append((estimates, "learned_remaining", guess_alone))
    if CONCAVE in lacks or OTHERS in lacks:
        owners.append(
            (
                estimates,
                "is_alone_in_model",
                lambda model, finished: np.full(len(model), CONCAVE not in lacks),
            )
        )
    with ExitStack() as stack:
        for owner, name, value in owners:
            stack.enter_context(replaced(owner, name, value))
        stack.enter_context(unaudited())
        yield


@contextmanager
def changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute for a while, without audits of values."""
    with replaced(owner, name, value), unaudited():
        yield


@contextmanager
def spread_over_likely_time() -> Iterator[None]:
    """Spread pauses over T times the probability that the change gains, without audits."""
    with likely_gains(), unaudited():
        yield


PARTS = (
    Part(DEFAULT),
    *(Part(f"without: {part}", patch=partial(without, part)) for part in ALL),
    *(
        Part(f"only: {part}", patch=partial(without, *(p for p in ALL if p != part)))
        for part in ALL
    ),
    Part("none of the five", patch=partial(without, *ALL)),
    Part(
        "sizes: finished jobs only, not the unfinished ones of the model",
        patch=partial(changed, estimates, "learned_remaining", guess_with_finished),
    ),
    Part(
        "sizes: no luck in their order",
        patch=partial(changed, flow, "UNSURE", 0.0),
    ),
    Part("sizes: known", options={"sizes": "known"}),
    Part("objective utility", "utility"),
    Part("objective completion", "completion"),
    Part("speeds: known", options={"speeds": "known"}),
    Part("speeds: noisy, wrong by 0%", options={"speeds": "noisy"}),
    Part("speeds: noisy, wrong by 30%", options={"speeds": "noisy", "misjudged": 0.3}),
    Part(WRONG, options={"speeds": "noisy", "misjudged": 1.0}),
    Part(
        "the same, types never tried not doubted",
        options={"speeds": "noisy", "misjudged": 1.0},
        patch=partial(changed, feedback, "correct_model", correct_without_doubt),
        against=WRONG,
    ),
    Part("pauses: spread as far as gains are likely", patch=spread_over_likely_time),
)
