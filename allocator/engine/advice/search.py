"""The smallest change of each kind that helps: guessed from prices, then found by deciding again.

A scale is searched on the assumption that a larger change never helps less: from the guess outwards
in growing steps, to a change that helps and a smaller one that does not; then by halving the
interval between them. The result helps in any case. That nothing smaller helps is true only under
the assumption. If few decisions are allowed, the search ends early with what it has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from allocator.domain.problem import Floats
from allocator.engine.advice.change import VerifiedChange
from allocator.engine.advice.trials import OutOfTries, Trials, Values

FINELY = 12  # decisions of a search from which on the last step of a scale is searched too
FIRST = 15  # most decisions of a search before others, unless its equal share is larger


@dataclass(frozen=True)
class ChangeScale:
    """Changes of growing size, values(n) for n = 1 .. most.

    The search starts at `guess` with the step `step`. Where `needed` is given, it is the smallest n
    that allows a plan whose jobs cost so much, (J,).
    """

    kind: str
    values: Callable[[int], Values]
    most: int
    guess: int = 1
    step: int = 1
    needed: Callable[[Floats], int] | None = None


@dataclass(frozen=True)
class ChangeList:
    """Changes without a scale, the smallest first."""

    kind: str
    values: Sequence[Values]


ChangeSearch = ChangeScale | ChangeList


@dataclass(frozen=True)
class Advice:
    """Verified changes, one of each kind that helps.

    `untried` has the kinds for which no decision was left.
    """

    changes: tuple[VerifiedChange, ...]
    untried: tuple[str, ...]


def find_changes(
    trials: Trials, job_id: str, searches: Iterable[ChangeSearch], most: int
) -> Advice:
    """Find the smallest change of each kind that helps the job, with at most `most` decisions.

    The result is in the order of the searches.
    """
    left = most
    todo = list(searches)
    changes = dict[str, VerifiedChange]()
    untried = dict[str, None]()
    for number, search in enumerate(todo):
        if search.kind in changes:
            continue
        if left <= 0 or trials.is_out_of_time():
            untried[search.kind] = None
            continue
        most_now = max(min(left, 2), min((left + 1) // 2, FIRST), left // (len(todo) - number))
        spent = trials.decisions
        trials.allow(most_now)
        try:
            if isinstance(search, ChangeScale):
                _search_scale(search, trials, 1 if most_now >= FINELY else search.step)
            else:
                any(trials.helps(values) for values in search.values)
        except OutOfTries:
            if trials.best is None:
                untried[search.kind] = None
        left -= trials.decisions - spent
        if trials.best is not None:
            values, share, _ = trials.best
            changes[search.kind] = VerifiedChange(
                search.kind,
                job_id,
                values,
                {p: trials.before(p) for p in values},
                share.gpus,
                share.pool,
                share.shared_with,
            )
    return Advice(tuple(changes.values()), tuple(kind for kind in untried if kind not in changes))


def _search_scale(scale: ChangeScale, trials: Trials, close: int) -> None:
    """Set the best of `trials` to the smallest n that helps.

    The result may be too large by less than `close`.
    """

    def helps(n: int) -> bool:
        return trials.helps(scale.values(n))

    at = max(1, min(scale.guess, scale.most))
    step = scale.step
    if helps(at):
        low = max(0, at - step)
        high = at
        while low > 0 and helps(low):
            low, high, step = max(0, low - 2 * step), low, 2 * step
    else:
        low = at
        high = min(scale.most, at + step)
        while high > low and not helps(high):
            low = high
            high = min(scale.most, high + 2 * step)
            step = 2 * step
        if high == low:
            return
    step = 1
    while high - low > close:
        middle = (low + high) // 2
        if scale.needed is not None and trials.best is not None:
            # the plan that helped stays the best one down to what it needs
            needed = scale.needed(trials.best[2])
            middle = needed if low < needed < high else max(middle, high - step)
        if helps(middle):
            high, step = middle, 2 * step
        else:
            low = middle
