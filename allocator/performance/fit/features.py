"""Speed from features of the model and of the GPU: regression with a kernel, and what it misses.

The features of a row, such as the GFLOPs of a step and the TFLOPS of the GPU, and its number of
GPUs count by their logarithms, scaled to mean 0 and deviation 1: z. So does the speed: y. With n
measured rows the prediction is kernel ridge regression,

    f(z) = mean y + k(z)^T a,   a = (K + s I)^-1 (y - mean y)
    k(z, z') = 1 + z^T z' + w exp(-g |z - z'|^2)

The first two terms are a power law, the last one is what bends it. Its weight w, its width g and
the noise s are those of a grid with the least error of leaving each row out in turn, which has a
closed form: the error of row i is a_i / ((K + s I)^-1)_ii.

`held_out` does all of this without the row that it predicts, the choice of w, g and s included. So
its errors are those of rows that were never seen. A speed is claimed less the error of which a
share `sure` of the held-out rows stays free (conformal prediction: a new row drawn alike does so
with about that probability).

References
----------
C. Saunders, A. Gammerman, V. Vovk, "Ridge regression learning algorithm in dual variables", ICML
1998. R. F. Barber et al., "Predictive inference with the jackknife+", Annals of Statistics 49
(2021). A regression of this kind with support vectors: S. Li et al., ICDCS 2020.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Floats

BENDS = (0.0, 0.3, 1.0, 3.0)  # w, and 0 for a power law
WIDTHS = (0.05, 0.2, 0.8)  # g
NOISES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # s
FEWEST = 5  # measured rows


@dataclass(frozen=True)
class FeatureFit:
    """A fitted speed.

    Attributes
    ----------
    bend, width, noise : float
        w, g and s.
    held_out : (n,)
        Predicted speed of each measured row, from the others alone.
    straight : (n,)
        The same of the power law (w = 0).
    """

    x: Floats
    speed: Floats
    bend: float
    width: float
    noise: float
    held_out: Floats
    straight: Floats

    def at(self, x: Floats) -> Floats:
        """Return the predicted speed at features (m, F), all above 0."""
        return _predict(self.x, self.speed, x, (self.bend, self.width, self.noise))

    def holds(self, x: Floats) -> Bools:
        """Return whether each feature of rows (m, F) lies in the range of the measured ones."""
        inside = (x >= self.x.min(axis=0)) & (x <= self.x.max(axis=0))
        return np.asarray(inside.all(axis=1), np.bool_)

    @property
    def error(self) -> float:
        """Mean relative error of the held-out speeds."""
        return float(np.mean(np.abs(self.held_out / self.speed - 1.0)))

    @property
    def error_s(self) -> float:
        """Mean absolute error of the held-out seconds of a unit of work."""
        return float(np.mean(np.abs(1.0 / self.held_out - 1.0 / self.speed)))

    @property
    def straight_error(self) -> float:
        """Mean relative error of the power law, held out."""
        return float(np.mean(np.abs(self.straight / self.speed - 1.0)))

    def margin(self, sure: float) -> float:
        """Return by which factor held-out predictions are too fast in no more than 1 - sure of all.

        It is at least 1. With few rows it is the largest factor that was seen. Rows at the ends of
        a feature do not count, because nothing is predicted beyond the measured range.
        """
        least, most = np.sort(self.x, axis=0)[[0, -1]]
        alone = [(self.x == end).sum(axis=0) == 1 for end in (least, most)]
        is_end = ((self.x == least) & alone[0] | (self.x == most) & alone[1]).any(axis=1)
        counted = ~is_end if (~is_end).sum() >= FEWEST else np.ones(len(is_end), bool)
        over = np.sort((self.held_out / self.speed)[counted])
        place = min(len(over), math.ceil(sure * (len(over) + 1))) - 1
        return max(1.0, float(over[place]))


def fit_features(x: Floats, speed: Floats) -> FeatureFit:
    """Fit the speeds (n,) of rows with the features (n, F).

    Raises
    ------
    ValueError
        With fewer than FEWEST rows, or values that are not above 0.
    """
    if len(speed) < FEWEST:
        raise ValueError(f"{len(speed)} measured rows: at least {FEWEST} are needed")
    if not ((x > 0).all() and (speed > 0).all() and np.isfinite(x).all()):
        raise ValueError("features and speeds must be above 0")
    every = list(itertools.product(BENDS, WIDTHS, NOISES))
    power_laws = [rule for rule in every if rule[0] == 0 and rule[1] == WIDTHS[0]]
    held_out = np.empty(len(speed))
    straight = np.empty(len(speed))
    for i in range(len(speed)):
        rest = np.arange(len(speed)) != i
        for out, rules in ((held_out, every), (straight, power_laws)):
            rule = _choose(x[rest], speed[rest], rules)
            out[i] = _predict(x[rest], speed[rest], x[[i]], rule)[0]
    return FeatureFit(x, speed, *_choose(x, speed, every), held_out, straight)


Rule = tuple[float, float, float]


def _choose(x: Floats, speed: Floats, rules: list[Rule]) -> Rule:
    """Return the rule with the least squared error of leaving each row out, by its closed form."""
    z = _scale(x, x)
    y = np.log(speed) - np.log(speed).mean()

    def squares(rule: Rule) -> float:
        inverse = np.linalg.inv(_kernel(z, z, rule) + rule[2] * np.eye(len(y)))
        return float((((inverse @ y) / np.diag(inverse)) ** 2).sum())

    return min(rules, key=squares)


def _predict(x: Floats, speed: Floats, at: Floats, rule: Rule) -> Floats:
    z = _scale(x, x)
    y = np.log(speed)
    weights = np.linalg.solve(_kernel(z, z, rule) + rule[2] * np.eye(len(y)), y - y.mean())
    return np.asarray(np.exp(y.mean() + _kernel(_scale(at, x), z, rule) @ weights))


def _scale(x: Floats, known: Floats) -> Floats:
    """Return the logarithms of features, scaled by those of the known rows."""
    seen = np.log(known)
    spread = seen.std(axis=0)
    return np.asarray((np.log(x) - seen.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _kernel(a: Floats, b: Floats, rule: Rule) -> Floats:
    bend, width, _ = rule
    apart = ((a[:, None] - b) ** 2).sum(axis=2)
    return np.asarray(1.0 + a @ b.T + bend * np.exp(-width * apart))
