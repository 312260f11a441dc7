"""Choose the form of speed model that fits each model and GPU type, by cross-validation.

Forms of the size alone are tested by leaving out one size at a time: the size is predicted from the
others, and the target is the speed of the fastest setting measured there. Forms that know the batch
take longer to fit, so sizes are left out in at most FOLDS parts. If there are only few rows of
several batches, single rows are left out instead (`_folds`).

The form with the least mean relative error is chosen, with these exceptions:

- A later form of ORDER replaces an earlier one only if its error is below MARGIN times the other.
- A form that knows the batch may be worse by up to BATCH_ERROR than one that does not, because it
  also says which batch to run with.
- If several batches of one size were measured, only forms that know the batch are eligible. The
  other forms are eligible again if there are MANY rows of SIZES sizes, and every form that knows
  the batch is worse than the best one by more than ASTRAY.

The parameters are those fitted to all rows. `error` of models.csv, the relative standard error, is
the root of the mean squared error of cross-validation. It is UNSEEN if only one size was measured,
and UNTESTED if no row could be left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain.problem import Bools, Floats
from allocator.performance import batched, curves
from allocator.performance.fit import batches
from allocator.performance.fit.forms import FORMS
from allocator.performance.fit.observations import Observations
from formulations.training_step import compute_efficiency

KIND = {
    "overhead": "overhead",
    "power": "power",
    "capped": "capped",
    "iteration": "iteration",
    # from the form to the kind of models.csv
    "iteration over batches": "iteration",
    "goodput": "goodput",
}
ORDER = tuple(KIND)
MARGIN = 0.95
BATCH_ERROR = 0.02  # additional error that is accepted for a form that knows the batch
ASTRAY = 0.15  # additional error beyond which forms that do not know the batch are eligible
MANY = 10  # rows; fewer do not determine seven parameters, or show that no batched form fits
UNSEEN = 0.3  # relative error where no size could be left out
UNTESTED = 0.2  # relative error where no row could be left out of a form over batches
SIZES = 4  # least number of sizes from which whole sizes are left out if batches vary
CORNERS = 3  # rows that determine "iteration over batches" without a constant
CONSTANT_ROWS = 6  # rows, of three sizes or more, that determine the constant as well
FOLDS = 6  # parts that are left out in turn, for the forms that know the batch
NODE = 8  # GPUs per node if the rows do not show it
Parameters = dict[str, float]


@dataclass(frozen=True)
class SpeedFit:
    """Describe the fitted speed model of one model and GPU type.

    Attributes
    ----------
    kind, parameters
        Kind and parameters of its row of models.csv.
    form
        Form that was chosen, one of ORDER.
    deviation
        Standard deviation of each fitted parameter.
    tried
        Mean relative error in cross-validation, by form.
    mean, median, rms
        Mean, median and root mean square of the relative error in cross-validation.
    inside
        Mean relative error on the fastest row of each size, which the fit has seen.
    seen
        Rows of the group; rows of equal settings are averaged.
    sizes
        Distinct sizes, in GPUs, ascending.
    """

    model: str
    gpu_type: str
    kind: str
    form: str
    parameters: Parameters
    deviation: Mapping[str, float]
    tried: Mapping[str, float]
    mean: float
    median: float
    rms: float
    inside: float
    seen: Observations
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class _Group:
    model: str
    gpu_type: str
    rows: Observations  # averaged
    best: Observations  # fastest of each size
    noise_scale: float = np.nan  # where it is known

    @property
    def varies_batch(self) -> bool:
        """Whether every row names its batch and some size was measured with several batches."""
        pairs = np.unique(np.stack([self.rows.gpus, self.rows.batch]), axis=1).shape[1]
        return bool((self.rows.batch > 0).all()) and pairs > len(self.best) > 1


def fit(
    seen: Observations,
    forms: Sequence[str] = ORDER,
    noise_scales: Mapping[str, float] | None = None,
) -> list[SpeedFit]:
    """Return the best speed model of every model and GPU type, in order of first appearance.

    A model and GPU type that no form can fit are left out. `forms` are names of ORDER. A form that
    knows the batch needs measurements of several batches and sizes. `noise_scales` has the gradient
    noise scale of models where it is known; "iteration over batches" does not fit the noise there.
    """
    known = noise_scales or {}
    groups = [
        _Group(m, t, rows, rows.take(rows.fastest()), known.get(m, np.nan))
        for m, t, rows in ((m, t, some.average_equal_settings()) for m, t, some in seen.groups())
    ]
    # speeds that differ by many powers of ten may overflow
    with np.errstate(all="ignore"):
        tried = [_try_plain_forms(g, forms) | _try_batched_forms(g, forms) for g in groups]
        return [_choose_form(g, trials) for g, trials in zip(groups, tried, strict=True) if trials]


def _try_plain_forms(g: _Group, forms: Sequence[str]) -> dict[str, tuple[Parameters, Floats]]:
    """Fit the forms of the size alone to one group.

    The result has, by form, the parameters and the relative error of each size when it is left out.
    """
    S, rate = len(g.best), g.best.useful
    k = g.best.gpus.astype(np.float64)
    every, each = np.ones((1, S)), 1.0 - np.eye(S)
    out = {}
    for form in (name for name in forms if name in FORMS):
        q = FORMS[form](k[None], rate[None], every)
        wrong = np.full(S, np.nan)
        if S > 1:
            p = FORMS[form](np.tile(k, (S, 1)), np.tile(rate, (S, 1)), each)
            wrong = curves.KINDS[KIND[form]](p, k) / rate - 1.0
        out[form] = {name: float(v[0]) for name, v in q.items()}, wrong
    return out


def at_rows(kind: str, q: batched.Parameters, rows: Observations) -> Floats:
    """Return the useful speed of each row at its own settings, (n,), with parameters q."""
    k = rows.gpus.astype(np.float64)
    if "max_batch" not in q:
        return curves.KINDS[kind](q, k)
    wide = {name: np.asarray(v, np.float64) for name, v in q.items()}
    wide |= {
        "max_local": np.asarray(np.inf),
        "max_batch": np.asarray(np.inf),
        "min_local": np.asarray(0.0),
    }
    nodes = np.where(
        rows.nodes > 0, rows.nodes, np.ceil(k / batched.number(wide, "gpus_per_node", float(NODE)))
    )
    # rows below the smallest useful batch have a speed too
    if kind == "goodput":
        step = batched.goodput_s(wide, k, rows.batch, rows.passes, nodes)
        useful = batched.goodput_efficiency(wide, np.maximum(rows.batch, wide["batch_0"]))
        return rows.batch / step * useful
    return batched.at(kind, wide, k, rows.batch, rows.passes, nodes).rate


def _try_batched_forms(g: _Group, forms: Sequence[str]) -> dict[str, tuple[Parameters, Floats]]:
    """Fit the forms that know the batch to one group, {} if its rows do not have several batches.

    The result has, by form, the parameters and the relative error of each target when it is left
    out.
    """
    rows = g.rows
    out = {}
    if (rows.batch == 0).any() or np.unique(rows.batch).size < 2 or len(g.best) < 2:
        return {}
    target, folds = _folds(g)
    for form, kind in (("iteration over batches", "iteration"), ("goodput", "goodput")):
        if form not in forms or (
            kind == "goodput"
            and g.varies_batch
            and len(rows) < MANY
            and "iteration over batches" in forms
        ):
            continue
        wrong = np.full(len(target), np.nan)
        whole = fit_batched(kind, rows, rows, noise_scale=g.noise_scale)
        for kept, left in folds:
            q = fit_batched(kind, rows.take(kept), rows, whole, g.noise_scale)
            wrong[left] = at_rows(kind, q, target.take(left)) / target.useful[left] - 1.0
        out[form] = whole, wrong
    return out


def _is_wide(g: _Group) -> bool:
    """Return whether there are enough rows and sizes to leave out whole sizes."""
    return len(g.rows) >= MANY and len(g.best) >= SIZES


def _folds(g: _Group) -> tuple[Observations, list[tuple[Bools, Bools]]]:
    """Return the rows to predict, and pairs of masks: rows to fit, and rows to predict from them.

    Whole sizes are left out, with the fastest setting of each as the target, if there are many rows
    or one batch of each size. Otherwise single rows are left out, as long as the others still have
    several sizes and batches.
    """
    rows = g.rows
    if not g.varies_batch or _is_wide(g):
        fold = np.searchsorted(g.best.gpus, rows.gpus) % FOLDS
        place = np.arange(len(g.best)) % FOLDS
        return g.best, [(fold != f, place == f) for f in range(min(FOLDS, len(g.best)))]
    masks = np.eye(len(rows), dtype=np.bool_)
    return rows, [
        (~left, left)
        for left in masks
        if len(rows) > CORNERS
        and _Group(
            g.model, g.gpu_type, rows.take(~left), rows.take(~left).take(rows.take(~left).fastest())
        ).varies_batch
    ]


def fit_batched(
    kind: str,
    some: Observations,
    every: Observations,
    near: Parameters | None = None,
    noise_scale: float = np.nan,
) -> Parameters:
    """Fit the parameters of kind "goodput" or "iteration" to some rows of a group.

    Parameters
    ----------
    kind : str
        "goodput" or "iteration".
    some : Observations
        Rows to fit.
    every : Observations
        All rows of the group; the bounds of the batch are taken from these.
    near : dict of str to float, optional
        Parameters fitted to almost the same rows, as the start of the search.
    noise_scale : float
        Gradient noise scale in samples where it is known, for "iteration".
    """
    known = ~np.isnan(every.efficiency) & (every.efficiency > 0)
    first = float(every.batch[known].min()) if known.any() else float(every.batch.min())
    local = np.ceil(every.batch / (every.gpus * every.passes) - 1e-9)
    q: Parameters = {
        "max_batch": float(every.batch[known].max() if known.any() else every.batch.max()),
        "max_local": float(local.max()),
    }
    if kind == "iteration":
        q["min_batch"] = first
        k, batch, rate = (v[None] for v in (some.gpus.astype(np.float64), some.batch, some.useful))
        is_known = len(some) >= CONSTANT_ROWS and np.unique(some.gpus).size > 2
        noise = None
        if not np.isnan(noise_scale):
            q["noise_scale"] = noise_scale
            rate, noise = rate / compute_efficiency(noise_scale, first, batch), np.zeros(1)
        q |= {
            name: float(v[0])
            for name, v in batches.iteration(k, batch, rate, noise, is_known).items()
        }
        # fitted relative to the smallest batch of `some`; the result is relative to `first`
        scale = (1.0 + q["noise"] / np.sqrt(first)) / (1.0 + q["noise"] / np.sqrt(some.batch.min()))
        return q | {name: q[name] * scale for name in ("compute", "sync", "constant")}
    together = every.gpus[every.nodes == 1]
    per_node = int(together.max()) if together.size else NODE
    q |= {"batch_0": first, "gpus_per_node": float(per_node), "min_local": float(local.min())}
    q |= batches.goodput(some, per_node, near)
    phi = batches.noise_scale(every, first)
    if not np.isnan(phi):
        q["noise_scale"] = phi
    # a common factor of the measured efficiencies becomes part of the seconds of a step
    if known.any():
        model = batched.goodput_efficiency(q, np.maximum(every.batch[known], first))
        level = float(np.exp(np.mean(np.log(every.efficiency[known] / model))))
        q |= {name: q[name] / level for name in batches.NAMES}
    return q


def _choose_form(g: _Group, tried: dict[str, tuple[Parameters, Floats]]) -> SpeedFit:
    several = len(g.best) > 1
    mean = {
        form: (
            float(np.nanmean(np.abs(wrong)))
            if several and not np.isnan(wrong).all()
            else UNTESTED
            if several
            else UNSEEN
        )
        for form, (_, wrong) in tried.items()
    }
    knowing = {form: value for form, value in mean.items() if form not in FORMS}
    if (
        g.varies_batch
        and knowing
        and (not _is_wide(g) or min(knowing.values()) <= min(mean.values()) + ASTRAY)
    ):
        eligible = knowing
    else:
        eligible = mean
    form = next(iter(eligible))
    for other, value in eligible.items():
        more = BATCH_ERROR if form in FORMS and other not in FORMS else 0.0
        form = (
            other if value < max(MARGIN * mean[form], mean[form] + more if more else 0.0) else form
        )
    q, wrong = tried[form]
    kind = KIND[form]
    tested = several and not np.isnan(wrong).all()
    rms = float(np.sqrt(np.nanmean(wrong**2))) if tested else mean[form]
    known: Bools = g.best.useful > 0
    inside = at_rows(kind, q, g.best)[known] / g.best.useful[known] - 1.0
    bounds = {"min_gpus": float(g.best.gpus.min()), "max_gpus": float(g.best.gpus.max())}
    return SpeedFit(
        g.model,
        g.gpu_type,
        kind,
        form,
        q | bounds | {"error": rms},
        _deviations(kind, q, g.rows),
        mean,
        mean[form],
        float(np.nanmedian(np.abs(wrong))) if tested else mean[form],
        rms,
        float(np.mean(np.abs(inside))),
        g.rows,
        tuple(g.best.gpus.tolist()),
    )


def extend_range(f: SpeedFit, reach: float) -> SpeedFit:
    """Return the fit, offered at sizes up to `reach` times the largest measured one."""
    most = float(int(f.sizes[-1] * reach))
    return replace(f, parameters={**f.parameters, "max_gpus": most})


FREE = {
    "overhead": ("rate_1", "c"),
    "power": ("rate_1", "exponent"),
    "capped": ("rate_1", "cap"),
    "iteration": ("compute", "sync", "constant", "noise"),
    "goodput": (*batches.NAMES, "gamma"),
}


def _deviations(kind: str, q: Parameters, rows: Observations) -> dict[str, float]:
    """Return the standard deviation of each fitted parameter; {} with too few rows.

    The covariance is (J'J)^-1 s^2 of the logarithms of the speeds, with J by finite differences.
    """
    if "max_batch" not in q:
        rows = rows.take(rows.fastest())
    names = [n for n in FREE[kind] if abs(q.get(n, 0.0)) > 0]
    free = len(rows) - len(names)
    if free < 1:
        return {}
    base = np.log(at_rows(kind, q, rows))
    slopes = (
        np.stack(
            [np.log(at_rows(kind, q | {n: q[n] * 1.0001}, rows)) - base for n in names], axis=1
        )
        / 1e-4
    )
    good = np.isfinite(base) & np.isfinite(slopes).all(axis=1)
    if good.sum() <= len(names):
        return {}
    wrong = np.log(rows.useful[good]) - base[good]
    spread = (
        np.linalg.pinv(slopes[good].T @ slopes[good])
        * float(wrong @ wrong)
        / max(1, int(good.sum()) - len(names))
    )
    return {
        n: float(abs(q[n]) * np.sqrt(max(0.0, v)))
        for n, v in zip(names, np.diag(spread), strict=True)
    }
