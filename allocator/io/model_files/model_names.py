"""Names of rows and columns that every reader of MPS and LP files accepts.

Names consist of letters, digits, "_", and at most one ".". A row is named after its family and
label (`quota_team_a`). A column is named after what it stands for (`x_job_7_pool_b_16`: job, pool,
GPUs) as far as the rows of the model show it, and otherwise `c<index>`. If two rows or columns
would have the same name, ".<index>" is added.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from formulations.model.linear import AT_MOST_ONE, CAPACITY, Ints, LinearModel

LABEL = 40  # characters of a label


def row_names(model: LinearModel) -> list[str]:
    """Return a distinct name for every row: its family, which is a word of ours, and its label."""
    names = [f"r{r}" for r in range(model.m)]
    for family in model.families:
        kind = clean_name(family.kind)
        names[family.first : family.stop] = [
            f"{kind}_{clean_name(label)}" if label else kind for label in family.labels
        ]
    return make_distinct(names)


def column_names(model: LinearModel) -> list[str]:
    """Return a distinct name for every column."""
    job = _labelled(model, AT_MOST_ONE)
    pool = _labelled(model, CAPACITY)
    gpus = np.zeros(model.n)
    inside = _inside(model, CAPACITY)
    gpus[model.entry_column[inside]] = model.coef[inside]
    names = [
        f"x_{j}" + (f"_{p}_{g:.9g}" if p else "") if j else f"c{c}"
        for c, (j, p, g) in enumerate(zip(job, pool, gpus.tolist(), strict=True))
    ]
    return make_distinct([re.sub(r"[.+-]", "_", name) for name in names])


def clean_name(text: str) -> str:
    """Replace everything but ASCII letters, digits and "_" by "_", and cut the text to LABEL."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)[:LABEL]


def make_distinct(names: Sequence[str]) -> list[str]:
    """Make equal names distinct with ".<index>"."""
    count = Counter(names)
    return [n if count[n] == 1 else f"{n}.{i}" for i, n in enumerate(names)]


def _inside(model: LinearModel, kind: str) -> Ints:
    """Return the entries in rows of that kind."""
    return np.flatnonzero(model.rows_of(kind)[model.index])


def _labelled(model: LinearModel, kind: str) -> list[str]:
    """Return for each column the clean label of its first row of that kind; "" if it has none."""
    labels = [""] * (model.m + 1)
    for family in model.families:
        if family.kind == kind:
            labels[family.first : family.stop] = [
                clean_name(label) or f"{r}" for r, label in enumerate(family.labels)
            ]
    at = np.full(model.n, model.m)
    inside = _inside(model, kind)[::-1]  # reversed, so that the first entry is written last
    at[model.entry_column[inside]] = model.index[inside]
    return [labels[r] for r in at.tolist()]
