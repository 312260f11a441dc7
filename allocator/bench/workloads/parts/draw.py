"""Draws that the generators share: durations by quantiles, elastic ranges, arrivals, offered load.

Each works on numpy arrays of all jobs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from allocator.bench.workloads.parts.figures import FIGURES, by_size
from allocator.domain.problem import Floats, Ints
from allocator.domain.schema.cells import Cells
from allocator.objects import Json, Record

Rng = np.random.Generator


@dataclass(frozen=True)
class Asked:
    """What a generator is asked for, and the source of its draws.

    Attributes
    ----------
    name : of the generator, whose figures count.
    seed : of every draw.
    load : in the unit of the generator.
    jobs : number of jobs.
    gpus : GPUs of the cluster; None for the default.
    """

    name: str
    seed: int
    load: float
    jobs: int
    gpus: int | None = None

    @cached_property
    def rng(self) -> Rng:
        """The source of every draw."""
        return np.random.default_rng(self.seed)

    @property
    def figures(self) -> Record:
        """The figures of the generator."""
        return FIGURES[self.name]

    @property
    def total(self) -> int:
        """GPUs of the cluster, where the jobs do not say how large it is."""
        return int(self.gpus or self.figures["gpus"])

    def draw_sizes(self) -> Ints:
        """Draw the GPUs that jobs request, by the figures, in strata."""
        return draw_in_strata(self.rng, by_size(self.figures["sizes"]), np.ones(self.jobs))

    def draw_submissions(self, window_s: float) -> Floats:
        """Draw submission times in whole seconds at an even rate."""
        return np.floor(arrivals(self.rng, np.ones(1), window_s, self.jobs))

    def draw_largest(self, requested: Ints, most: int) -> Ints:
        """Draw max_gpus: 1, 2 or 4 times the request with probability .3, .3 and .4.

        It is at most `most`, but never below the request.
        """
        wide = requested * self.rng.choice(np.array([1, 2, 4]), len(requested), p=[0.3, 0.3, 0.4])
        return np.asarray(np.maximum(np.minimum(wide, most), requested))


def draw_keys(rng: Rng, share: Mapping[int, float], count: int) -> Ints:
    """Draw `count` keys in proportion to their shares."""
    weights = np.array(list(share.values()))
    return rng.choice(np.array(list(share), np.int64), count, p=weights / weights.sum())


def draw_in_strata(rng: Rng, share: Mapping[int, float], weight: Floats | Ints) -> Ints:
    """Draw one key per entry of `weight`, so that total weights are in proportion to the shares.

    They are exact to within one entry.
    """
    weights = np.array(list(share.values()))
    ends = np.cumsum(weights / weights.sum())
    place = np.minimum(np.searchsorted(ends, _strata(rng, weight), side="right"), len(ends) - 1)
    return np.array(list(share), np.int64)[place]


def draw_records(rng: Rng, records: Sequence[Record], count: int) -> list[Record]:
    """Draw `count` records in strata, by the `share` of each."""
    share = {i: record["share"] for i, record in enumerate(records)}
    return [records[i] for i in draw_in_strata(rng, share, np.ones(count)).tolist()]


def scores_in_strata(rng: Rng, weight: Floats | Ints) -> Floats:
    """Draw standard normal values, one per entry, each from its own slice of the distribution.

    The probability of a slice is the share of the entry in the weight. Slices are in random order.
    """
    return np.asarray(ndtri(np.clip(_strata(rng, weight), 1e-9, 1.0 - 1e-9)))


def lognormal_in_strata(rng: Rng, median: float, sigma: float, count: int) -> Floats:
    """Draw log-normal values, each from its own slice of the distribution, all equally probable."""
    return median * np.exp(sigma * scores_in_strata(rng, np.ones(count)))


def _strata(rng: Rng, weight: Floats | Ints) -> Floats:
    """Draw uniform values that together cover (0, 1).

    The unit interval is cut into pieces in random order.
    """
    order = rng.permutation(len(weight))
    out = np.empty(len(weight))
    out[order] = (np.cumsum(weight[order]) - rng.random(len(weight)) * weight[order]) / max(
        weight.sum(), 1
    )
    return out


def duration_s(gpus: Ints, normal: Floats, longest_s: float) -> Floats:
    """Return durations in seconds with Philly's quantiles given the number of GPUs, shape (J,).

    Between the measured quantiles ln(duration) is linear in the normal score, so that each piece is
    a piece of a log-normal distribution. Sizes that were not measured use the nearest measured one.

    Parameters
    ----------
    gpus : (J,).
    normal : standard normal draws, one per job. Equal draws give equal durations; correlated draws
    give a sweep.
    longest_s : the largest duration.
    """
    out = np.empty(len(gpus))
    philly = FIGURES["philly"]
    duration_s = by_size(philly["duration_s"])
    measured = np.array(list(duration_s))
    nearest = measured[np.abs(np.log2(measured)[:, None] - np.log2(gpus)).argmin(axis=0)]
    score = np.array([-4.0, *ndtri(np.array(philly["quantiles"])), 4.0])
    for k, quantiles in duration_s.items():
        here = nearest == k
        log = np.log([philly["shortest_s"], *quantiles])
        out[here] = np.exp(np.interp(normal[here], score, log))
    return np.minimum(out, longest_s)


def arrivals(rng: Rng, intensity: Floats, step_s: float, count: int) -> Floats:
    """Draw `count` submission times in order, from a Poisson process given that so many happen.

    `intensity` is the relative rate of consecutive slots of `step_s` seconds from time 0. All slots
    together are the window.
    """
    edges = np.arange(len(intensity) + 1) * step_s
    mass = np.concatenate([[0.0], np.cumsum(intensity)])
    return np.asarray(np.interp(np.sort(rng.uniform(0.0, mass[-1], count)), mass, edges))


def round_digits(x: Floats, count: int) -> Floats:
    """Round to `count` significant digits.

    This keeps files short. It also makes bytes equal on machines whose logarithms differ in the
    last digit.
    """
    return np.array([float(f"{v:.{count}g}") for v in x.tolist()])


def names(count: int, prefix: str = "job") -> list[str]:
    width = max(3, len(str(count)))
    return [f"{prefix}-{i:0{width}d}" for i in range(1, count + 1)]


def overhead_rate(rate_1: Floats, c: Floats, gpus: Ints) -> Floats:
    """Return rate_1 n / (1 + c (n - 1)), work per second."""
    return rate_1 * gpus / (1.0 + c * (gpus - 1.0))


def autoregression(rng: Rng, count: int, memory: float) -> Floats:
    """Draw a first-order autoregression with variance 1, shape (count,)."""
    out = rng.normal(size=count)
    for i in range(1, count):
        out[i] = memory * out[i - 1] + np.sqrt(1.0 - memory**2) * out[i]
    return out


def job_columns(
    submitted_s: Floats, model: Cells, work: Floats | Ints, requested: Ints, most: Ints
) -> Json:
    """Return the columns of workload.csv that all jobs have: any size up to the most GPUs."""
    return {
        "job_id": names(len(model)),
        "submitted_s": submitted_s,
        "model": model,
        "total_work": work,
        "requested_gpus": requested,
        "min_gpus": np.ones(len(model), np.int64),
        "max_gpus": most,
    }
