"""A change pays only as far as it is likely to gain: a candidate for the spread of pauses.

The pause a_o of a changed option is spread over max(D, T_o P_o) in place of T_o, where P_o is the
probability that the option is faster than what the job holds, h:

    P_o     = Phi(ln(r_o / r_h) / e_o)
    e_o^2   = n_o + n_h + SPREAD^2 (d_o + d_h) / REACH
    n_o     = variance of the estimate at the observed size that is nearest to o, on its GPU type
    d_o     = doublings between that size and the size of o

Where both rest on the same observation, its error cancels: e_o^2 = SPREAD^2 |log2 k_o - log2 k_h| /
REACH. The profiling run at the smallest size is an observation. SPREAD and REACH are those of
`allocator.performance.fit.feedback`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Curves, Floats, Ints, Problem, Rates
from allocator.performance.fit import feedback
from allocator.performance.table import RateTable
from allocator.simulator import speed_beliefs
from allocator.simulator.speed_beliefs import SpeedBeliefs
from allocator.valuation import values
from formulations.objectives.context import Context, Facts, stretch_s
from scripts.studies.default.replacing import replaced

BUILD_FACTS = values.build_facts
BELIEVED = SpeedBeliefs.believed


@dataclass(frozen=True)
class Nearest:
    """The nearest observation of every model, GPU type and size, (M, T, K).

    `doublings` are those of the observed size, `variance` is that of ln(speed).
    """

    doublings: Floats
    variance: Floats

    @classmethod
    def of(cls, beliefs: SpeedBeliefs, most: int) -> Nearest:
        """Return the nearest observations of sizes up to `most` GPUs."""
        models, types = beliefs.profile.shape
        first = np.log2(beliefs._least)[:, None]
        at = [[[float(first[m, 0])] for _ in range(types)] for m in range(models)]
        error = [[[speed_beliefs.PROFILE_NOISE**2] for _ in range(types)] for _ in range(models)]
        for (m, t, k, nodes), e in beliefs.estimates.items():
            if nodes == 0:
                at[m][t].append(float(np.log2(k)))
                error[m][t].append(max(feedback.NOISE**2, e.variance) / max(1.0, e.weight))
        wanted = np.log2(np.maximum(1, np.arange(most + 1)))
        out = cls(np.zeros((models, types, most + 1)), np.zeros((models, types, most + 1)))
        for m in range(models):
            for t in range(types):
                # of two at the same size, the observation and not the profiling run
                known, noise = np.array(at[m][t][::-1]), np.array(error[m][t][::-1])
                near = np.abs(known[:, None] - wanted).argmin(axis=0)
                out.doublings[m, t], out.variance[m, t] = known[near], noise[near]
        return out


@dataclass(frozen=True)
class UncertainFacts(Facts):
    """Facts with model (J,), GPU type (P,) and the nearest observations."""

    model: Ints
    gpu_type: Ints
    nearest: Nearest


def chance_of_gain(c: Context) -> Floats:
    """Return P_o (n,), 1 for jobs that hold nothing."""
    f, every = c.facts, c.everything.offer
    if not isinstance(f, UncertainFacts):
        raise TypeError("the facts of the round have no uncertain speeds")
    held = np.full(len(f.weight), -1)
    kept = np.flatnonzero(every.keep)
    held[every.job[kept]] = kept
    o = np.flatnonzero((held[c.job] >= 0) & ~c.offer.keep)
    out = np.ones(len(c.job))
    if not len(o):
        return out
    h = held[c.job[o]]
    gain = np.log(c.rate[o] / every.rate[h])
    model = f.model[c.job[o]]
    kinds = f.gpu_type[c.pool[o]], f.gpu_type[every.pool[h]]
    sizes = c.offer.gpus[o], every.gpus[h]
    at, noise = (
        [x[model, t, k] for t, k in zip(kinds, sizes, strict=True)]
        for x in (f.nearest.doublings, f.nearest.variance)
    )
    k_o, k_h = (np.log2(k) for k in sizes)
    same = (kinds[0] == kinds[1]) & (at[0] == at[1])
    away = np.where(same, np.abs(k_o - k_h), np.abs(k_o - at[0]) + np.abs(k_h - at[1]))
    variance = feedback.SPREAD**2 * away / feedback.REACH + np.where(same, 0.0, sum(noise))
    out[o] = normal_share(gain / np.sqrt(variance))
    return out


def normal_share(z: Floats) -> Floats:
    """Return Phi(z)."""
    from scipy.special import ndtr

    return np.asarray(ndtr(z), dtype=np.float64)


@contextmanager
def likely_gains() -> Iterator[None]:
    """Spread pauses over T_o P_o for a while."""
    latest: list[SpeedBeliefs] = []

    def believed(beliefs: SpeedBeliefs) -> tuple[Rates, Curves]:
        latest[:] = [beliefs]
        return BELIEVED(beliefs)

    def build_facts(problem: Problem, table: RateTable) -> UncertainFacts:
        facts = BUILD_FACTS(problem, table)
        given = {x.name: getattr(facts, x.name) for x in dataclasses.fields(Facts)}
        nearest = Nearest.of(latest[0], int(problem.pools.gpus.max()))
        return UncertainFacts(
            **given,
            model=problem.jobs.model,
            gpu_type=problem.pools.gpu_type,
            nearest=nearest,
        )

    def held_s(c: Context) -> Floats:
        to_the_end = c.offer.pause_s + c.remaining / c.rate
        likely = np.minimum(stretch_s(c.facts)[c.job], to_the_end)
        return np.maximum(c.facts.interval_s, likely * chance_of_gain(c))

    with ExitStack() as stack:
        stack.enter_context(replaced(SpeedBeliefs, "believed", believed))
        stack.enter_context(replaced(values, "build_facts", build_facts))
        stack.enter_context(replaced(Context, "held_s", property(held_s)))
        yield
