"""Compare a policy with a baseline in pairs of the same workload, load and seed.

For pair i with baseline b_i and policy x_i the change is 100 (x_i - b_i) / b_i percent. It is 0 if
both are 0. If only b_i is 0, the change is undefined, and the pair is left out. The results are the
mean change, a bootstrap interval of that mean (BCa, Efron 1987; the percentile method for two
pairs), and two-sided paired tests of "no change": Wilcoxon's signed ranks and Student's t.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 9999
SEED = 0  # of the resampling
LEVEL = 0.05
FEWEST_SEEDS = 6  # with fewer pairs the test cannot give a p below LEVEL: 2 / 2^n


@dataclass(frozen=True)
class PairedComparison:
    """A policy against the baseline in one metric; undefined numbers are nan.

    Attributes
    ----------
    n : pairs with a change.
    baseline_mean, policy_mean : means over all pairs that have both values, in the unit of the
    metric.
    change_percent : mean of the changes; low_percent and high_percent are its interval.
    of_means_percent : change of the means. Heavy seeds dominate it, but tiny baselines cannot
    inflate it.
    lower : pairs in which the policy has the lower value.
    """

    n: int
    baseline_mean: float
    policy_mean: float
    change_percent: float
    low_percent: float
    high_percent: float
    of_means_percent: float
    lower: int
    wilcoxon_p: float
    t_p: float

    def verdict(self, more_is_better: bool = False) -> str:
        """Return the verdict: "better", "worse" or "open".

        It is "open" unless the interval excludes 0 and Wilcoxon's p is below 5 %.
        """
        if not (self.wilcoxon_p < LEVEL and (self.low_percent > 0 or self.high_percent < 0)):
            return "open"
        return "better" if (self.change_percent > 0) == more_is_better else "worse"


def percent_changes(policy: Floats, baseline: Floats) -> Floats:
    """Return the change of each pair in percent; nan if it is undefined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        change = 100.0 * (policy - baseline) / np.abs(baseline)
    change[(policy == 0) & (baseline == 0)] = 0.0
    change[~np.isfinite(change)] = np.nan
    return change


def compare(
    policy: Sequence[float] | Sequence[Sequence[float]],
    baseline: Sequence[float] | Sequence[Sequence[float]],
) -> PairedComparison:
    """Compare pairs of one workload and load, (seeds,), or over several loads, (loads, seeds).

    The change of a seed is the mean of its changes at the loads. It counts once, because a seed
    draws similar jobs at every load. Seeds that lack a load are left out.
    """
    x, b = (np.atleast_2d(np.array(values, float)) for values in (policy, baseline))
    change = percent_changes(x, b).mean(axis=0)
    x, b = x.mean(axis=0), b.mean(axis=0)
    both = np.isfinite(x) & np.isfinite(b)
    x, b = x[both], b[both]
    sample = change[np.isfinite(change)]
    means = (float(b.mean()), float(x.mean())) if len(x) else (math.nan, math.nan)
    low, high = interval(sample)
    return PairedComparison(
        len(sample),
        *means,
        float(sample.mean()) if len(sample) else math.nan,
        low,
        high,
        100.0 * (means[1] - means[0]) / abs(means[0]) if means[0] else math.nan,
        int(np.sum(x < b)),
        wilcoxon_p(sample),
        t_p(sample),
    )


def interval(sample: Floats) -> tuple[float, float]:
    """Return a bootstrap interval of the mean.

    It is (nan, nan) for fewer than two values, and the value itself if all values are equal.
    """
    from scipy.stats import bootstrap

    if len(sample) < 2:
        return math.nan, math.nan
    if _equal(sample):
        return float(sample[0]), float(sample[0])
    with warnings.catch_warnings():
        # of degenerate resamples, handled below
        warnings.simplefilter("ignore")
        for method in ("BCa", "percentile") if len(sample) > 2 else ("percentile",):
            span = bootstrap(
                (sample,),
                np.mean,
                n_resamples=RESAMPLES,
                confidence_level=CONFIDENCE,
                method=method,
                random_state=np.random.default_rng(SEED),
            ).confidence_interval
            if math.isfinite(span.low) and math.isfinite(span.high):
                break
    return float(span.low), float(span.high)


def wilcoxon_p(sample: Floats) -> float:
    """Return the two-sided p of Wilcoxon's signed ranks; 1 if all values are 0.

    p is exact up to 50 values without ties or zeros. n values can give no less than 2 / 2**n: with
    fewer than six seeds, no change is ever significant at 5 %.
    """
    from scipy.stats import wilcoxon

    if len(sample) < 2:
        return math.nan
    if not sample.any():
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(wilcoxon(sample).pvalue)


def t_p(sample: Floats) -> float:
    """Return the two-sided p of Student's paired t.

    It is 1 if all values are 0, and nan if they are all equal to another number.
    """
    from scipy.stats import ttest_1samp

    if len(sample) < 2 or (_equal(sample) and sample.any()):
        return math.nan
    return float(ttest_1samp(sample, 0.0).pvalue) if sample.any() else 1.0


def _equal(sample: Floats) -> bool:
    return bool(np.ptp(sample) <= 1e-9 * np.abs(sample).max())  # equal up to rounding
