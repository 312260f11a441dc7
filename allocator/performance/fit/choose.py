"""Which form fits each (model, GPU type): cross-validation, leaving out one size at a time.

Each size is predicted from the others alone. The target is the speed of the fastest setting
measured there. The form with the least mean relative error is chosen, a later one of ORDER only if
it is better by MARGIN. One that knows the batch may be worse by BATCH_ERROR than one that does not,
since it also says which batch to run with; where several batches of one size were measured, only
those that know the batch are chosen, unless MANY rows say that all of them are worse by ASTRAY. Few
rows (`_folds`) are left out one by one instead; what has no more rows than parameters cannot be
tested and is UNTESTED. The parameters are those fitted to everything. `error` of models.csv, the
relative standard error, is the root of the mean squared error of cross-validation; with one size it
is UNSEEN.
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

KIND = {
    "overhead": "overhead",
    "power": "power",
    "capped": "capped",
    "iteration": "iteration",
    # form -> kind of models.csv
    "iteration over batches": "iteration",
    "goodput": "goodput",
}
ORDER = tuple(KIND)
MARGIN = 0.95
BATCH_ERROR = 0.02  # error that is accepted for knowing which batch is best
ASTRAY = 0.15  # error beyond which that is not accepted
MANY = 10  # rows: fewer do not tell seven parameters, nor that no form with a batch fits
UNSEEN = 0.3  # relative error where no size could be left out
UNTESTED = 0.2  # relative error where no row could be left out of a form over batches
SIZES = 4  # that there are at least where sizes are left out of several batches
CORNERS = 3  # rows that settle iteration over batches without a constant
CONSTANT_ROWS = 6  # rows of three sizes from which a constant is told from the rest
FOLDS = 6  # parts left out in turn, for the fits that take longer
NODE = 8  # GPUs per node where the rows do not tell
Parameters = dict[str, float]


@dataclass(frozen=True)
class SpeedFit:
    """The model of one group. kind, parameters: a row of models.csv. form: of ORDER. tried: form ->
    mean relative error in cross-validation. mean, median, rms: of the chosen form; inside: mean
    relative error on the rows it was fitted to. deviation: standard deviation of each parameter.
    seen: the rows, equal settings averaged. sizes: distinct."""

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

    @property
    def varies_batch(self) -> bool:
        """Whether the rows tell what the batch does: all name it, and some size has several."""
        pairs = np.unique(np.stack([self.rows.gpus, self.rows.batch]), axis=1).shape[1]
        return bool((self.rows.batch > 0).all()) and pairs > len(self.best) > 1


def fit(seen: Observations, forms: Sequence[str] = ORDER) -> list[SpeedFit]:
    """The best model of every (model, GPU type), in order of first appearance; those that no form
    can fit are left out.

    forms: of ORDER; those over batches need several batches and sizes.
    """
    groups = [
        _Group(m, t, rows, rows.take(rows.fastest()))
        for m, t, rows in ((m, t, some.average_equal_settings()) for m, t, some in seen.groups())
    ]
    # speeds that differ by many powers of ten
    with np.errstate(all="ignore"):
        plain = _try_plain_forms(groups, [f for f in forms if f in FORMS]) if groups else {}
        tried = [
            {**{f: p[i] for f, p in plain.items()}, **_try_batched_forms(g, forms)}
            for i, g in enumerate(groups)
        ]
        return [_choose_form(g, found) for g, found in zip(groups, tried, strict=True) if found]


def _try_plain_forms(
    groups: list[_Group], forms: Sequence[str]
) -> dict[str, list[tuple[Parameters, Floats]]]:
    """Form -> per group (parameters, error of each size when left out), all groups at once."""
    most = max(len(g.best) for g in groups)
    k, rate, weight = (
        np.ones((len(groups), most)),
        np.ones((len(groups), most)),
        np.zeros((len(groups), most)),
    )
    for i, g in enumerate(groups):
        s = len(g.best)
        k[i, :s], rate[i, :s], weight[i, :s] = g.best.gpus, g.best.useful, 1.0
    several = weight.sum(axis=1) > 1
    out: dict[str, list[tuple[Parameters, Floats]]] = {}
    for form in forms:
        q = FORMS[form](k, rate, weight)
        wrong = np.full(k.shape, np.nan)
        for s in range(most):
            left = np.flatnonzero(several & (weight[:, s] > 0))
            if len(left):
                without = weight[left].copy()
                without[:, s] = 0.0
                p = FORMS[form](k[left], rate[left], without)
                wrong[left, s] = curves.KINDS[KIND[form]](p, k[left, s]) / rate[left, s] - 1.0
        out[form] = [
            ({name: float(v[i]) for name, v in q.items()}, wrong[i, : len(g.best)])
            for i, g in enumerate(groups)
        ]
    return out


def at_rows(kind: str, q: batched.Parameters, rows: Observations) -> Floats:
    """Useful speed of each row at its own settings."""
    k = rows.gpus.astype(np.float64)
    if "max_batch" not in q:
        return curves.KINDS[kind](q, k)
    wide = {name: np.asarray(v, dtype=np.float64) for name, v in q.items()}
    wide |= {
        "max_local": np.asarray(np.inf),
        "max_batch": np.asarray(np.inf),
        "min_local": np.asarray(0.0),
    }
    nodes = np.where(
        rows.nodes > 0, rows.nodes, np.ceil(k / batched.number(wide, "gpus_per_node", float(NODE)))
    )
    # rows below the smallest useful batch too
    if kind == "goodput":
        step = batched.goodput_s(wide, k, rows.batch, rows.passes, nodes)
        useful = batched.goodput_efficiency(wide, np.maximum(rows.batch, wide["batch_0"]))
        return np.asarray(rows.batch / step * useful)
    return batched.at(kind, wide, k, rows.batch, rows.passes, nodes).rate


def _try_batched_forms(g: _Group, forms: Sequence[str]) -> dict[str, tuple[Parameters, Floats]]:
    """The same for the forms that need batches, where the rows have several."""
    rows, out = g.rows, {}
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
        wrong, whole = np.full(len(target), np.nan), fit_batched(kind, rows, rows)
        for kept, left in folds:
            q = fit_batched(kind, rows.take(kept), rows, whole)
            wrong[left] = at_rows(kind, q, target.take(left)) / target.useful[left] - 1.0
        out[form] = whole, wrong
    return out


def _is_wide(g: _Group) -> bool:
    """Whether there are so many rows and sizes that sizes can be left out."""
    return len(g.rows) >= MANY and len(g.best) >= SIZES


def _folds(g: _Group) -> tuple[Observations, list[tuple[Bools, Bools]]]:
    """The rows to predict, and what is left out in turn: (rows that are kept, rows to predict).

    Sizes, with the fastest setting of each as the target, where there are many or one batch of
    each; else single rows, of which those that are kept still have several sizes and batches.
    """
    rows = g.rows
    if not g.varies_batch or _is_wide(g):
        fold = np.searchsorted(g.best.gpus, rows.gpus) % FOLDS
        place = np.arange(len(g.best)) % FOLDS
        return g.best, [(fold != f, place == f) for f in range(min(FOLDS, len(g.best)))]
    one = np.eye(len(rows), dtype=np.bool_)
    return rows, [
        (~left, left)
        for left in one
        if len(rows) > CORNERS
        and _Group(
            g.model, g.gpu_type, rows.take(~left), rows.take(~left).take(rows.take(~left).fastest())
        ).varies_batch
    ]


def fit_batched(
    kind: str, some: Observations, every: Observations, near: Parameters | None = None
) -> Parameters:
    """Parameters of kind goodput or iteration from some rows of a group, with the bounds of every
    row of it. near: parameters of almost the same rows, to start from."""
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
        told = len(some) >= CONSTANT_ROWS and np.unique(some.gpus).size > 2
        q |= {
            name: float(v[0])
            for name, v in batches.iteration(k, batch, rate, constant=told).items()
        }
        # fitted against the smallest batch of these rows; bounds count from that of all
        scale = (1.0 + q["noise"] / np.sqrt(first)) / (1.0 + q["noise"] / np.sqrt(some.batch.min()))
        return q | {name: q[name] * scale for name in ("compute", "sync", "constant")}
    together = every.gpus[every.nodes == 1]
    per_node = int(together.max()) if together.size else NODE
    q |= {"batch_0": first, "gpus_per_node": float(per_node), "min_local": float(local.min())}
    q |= batches.goodput(some, per_node, near)
    phi = batches.noise_scale(every, first)
    if not np.isnan(phi):
        q["noise_scale"] = phi
    # the level of the useful share goes into the seconds
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
    """The same offered at sizes up to `reach` times the largest measured one."""
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
    """Standard deviation of each fitted parameter: (J'J)^-1 s^2 of the logarithms of the speeds,
    J by differences.
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
