"""Paired comparison of a policy with a baseline: the same workload, load and seed, twice.

For pair i with baseline b_i and policy x_i the change is 100 (x_i - b_i) / b_i percent (0 where
both are 0; undefined, and left out, where only b_i is). Reported are the mean change, a bootstrap
interval of that mean (BCa, Efron 1987; the percentile method for two pairs), and two-sided paired
tests of "no change": Wilcoxon's signed ranks and Student's t.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 9999
LEVEL = 0.05
FEWEST_SEEDS = 6  # with fewer pairs the test cannot give a p below LEVEL: 2 / 2^n


@dataclass(frozen=True)
class PairedComparison:
    """A policy against the baseline in one metric. Undefined numbers are nan.

    n: pairs with a change. baseline_mean, policy_mean: over all pairs that have both, in the
    metric's unit. change_percent: mean of the changes; low, high: its interval. of_means_percent:
    change of the means, which heavy seeds dominate and tiny baselines cannot blow up. lower: pairs
    in which the policy had the lower value.
    """

    n: int
    baseline_mean: float
    policy_mean: float
    change_percent: float
    low: float
    high: float
    of_means_percent: float
    lower: int
    wilcoxon_p: float
    t_p: float

    def verdict(self, more_is_better: bool = False) -> str:
        """ "better" or "worse" if the interval excludes 0 and Wilcoxon's p is below 5 %, else
        "open".
        """
        if not (self.wilcoxon_p < LEVEL and (self.low > 0 or self.high < 0)):
            return "open"
        return "better" if (self.change_percent > 0) == more_is_better else "worse"


def percent_changes(policy: Floats, baseline: Floats) -> Floats:
    """Percent per pair; nan where undefined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        change = 100.0 * (policy - baseline) / np.abs(baseline)
    change[(policy == 0) & (baseline == 0)] = 0.0
    change[~np.isfinite(change)] = np.nan
    return change


def compare(policy: Sequence[float], baseline: Sequence[float], seed: int = 0) -> PairedComparison:
    """Compare pairs of one workload and load. seed: of the resampling."""
    x, b = np.asarray(policy, float), np.asarray(baseline, float)
    return _comparison(percent_changes(x, b), x, b, seed)


def compare_pooled(
    policy: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]], seed: int = 0
) -> PairedComparison:
    """Compare over several loads, arrays (loads, seeds): a seed's change is the mean of its changes
    at the loads, and counts once, because a seed draws similar jobs at every load. Seeds that miss
    a load are left out."""
    x, b = np.asarray(policy, float), np.asarray(baseline, float)
    return _comparison(percent_changes(x, b).mean(axis=0), x.mean(axis=0), b.mean(axis=0), seed)


def interval(sample: Floats, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval of the mean; (nan, nan) for fewer than two values, the value itself if
    all are equal.
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
            found = bootstrap(
                (sample,),
                np.mean,
                n_resamples=RESAMPLES,
                confidence_level=CONFIDENCE,
                method=method,
                random_state=np.random.default_rng(seed),
            ).confidence_interval
            if math.isfinite(found.low) and math.isfinite(found.high):
                break
    return float(found.low), float(found.high)


def wilcoxon_p(sample: Floats) -> float:
    """Two-sided p of Wilcoxon's signed ranks; exact up to 50 values without ties or zeros; 1 if all
    are 0.

    n values can give no less than 2 / 2**n: below six seeds, nothing is ever significant at 5 %.
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
    """Two-sided p of Student's paired t; 1 if all values are 0, nan if they are all equal
    otherwise.
    """
    from scipy.stats import ttest_1samp

    if len(sample) < 2 or (_equal(sample) and sample.any()):
        return math.nan
    return float(ttest_1samp(sample, 0.0).pvalue) if sample.any() else 1.0


def _equal(sample: Floats) -> bool:
    return bool(np.ptp(sample) <= 1e-9 * np.abs(sample).max())  # equal up to rounding


def _comparison(change: Floats, policy: Floats, baseline: Floats, seed: int) -> PairedComparison:
    both = np.isfinite(policy) & np.isfinite(baseline)
    x, b = policy[both], baseline[both]
    sample = change[np.isfinite(change)]
    means = (float(b.mean()), float(x.mean())) if len(x) else (math.nan, math.nan)
    low, high = interval(sample, seed)
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
