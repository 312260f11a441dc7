"""Names of rows and columns that every reader of MPS and LP files accepts: letters, digits, "_",
and "." once.

A row is called after its family and label (`quota_team_a`), a column after what it stands for
(`x_job_7_pool_b_16`: job, pool, GPUs) as far as the model's rows tell, else `c<index>`. A name that
two of them would share ends in ".<index>".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from formulations.model.linear import AT_MOST_ONE, CAPACITY, Ints, LinearModel

# characters of a label; four terms to a line stay below the 560 that some readers take
LABEL = 40
KEYWORDS = {
    "end",
    "st",
    "free",
    "inf",
    "infinity",
    "bound",
    "bounds",
    "bin",
    "binary",
    "binaries",
    "gen",
    "general",
    "generals",
    "int",
    "integer",
    "integers",
    "max",
    "maximize",
    "maximise",
    "maximum",
    "min",
    "minimize",
    "minimise",
    "minimum",
    "rhs",
    "ranges",
    "sos",
    "value",
}
FIRST = re.compile(r"(?![eE]\d)[A-Za-z]")  # "e5" would be half a number


def row_names(model: LinearModel) -> list[str]:
    """A name for every row, all different, none of them "value" (the objective)."""
    names = [f"r{r}" for r in range(model.m)]
    for family in model.families:
        kind = clean_name(family.kind)
        names[family.first : family.stop] = [
            f"{kind}_{clean_name(label)}" if label else kind for label in family.labels
        ]
    return make_distinct(names, "r_")


def column_names(model: LinearModel) -> list[str]:
    """A name for every column, all different."""
    job, pool = _labelled(model, AT_MOST_ONE), _labelled(model, CAPACITY)
    gpus = np.zeros(model.n)
    inside = _inside(model, CAPACITY)
    gpus[model.entry_column[inside]] = model.coef[inside]
    names = [
        f"x_{j}" + (f"_{p}_{g:.9g}" if p else "") if j else f"c{c}"
        for c, (j, p, g) in enumerate(zip(job, pool, gpus.tolist(), strict=True))
    ]
    return make_distinct(
        [re.sub(r"[^\w]", "_", n) if "." in n or "-" in n or "+" in n else n for n in names], "x_"
    )


def clean_name(text: str) -> str:
    """The text with everything but ASCII letters, digits and "_" replaced by "_", cut to LABEL."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)[:LABEL]


def make_distinct(names: Sequence[str], prefix: str) -> list[str]:
    """The names made legal with `prefix` and different with ".<index>"."""
    legal = [n if FIRST.match(n) and n.lower() not in KEYWORDS else prefix + n for n in names]
    count: dict[str, int] = {}
    for n in legal:
        count[n] = count.get(n, 0) + 1
    return [n if count[n] == 1 else f"{n}.{i}" for i, n in enumerate(legal)]


def _inside(model: LinearModel, kind: str) -> Ints:
    """Entries in rows of that kind."""
    row = np.zeros(model.m, dtype=bool)
    for family in model.families:
        if family.kind == kind:
            row[family.first : family.stop] = True
    return np.flatnonzero(row[model.index])


def _labelled(model: LinearModel, kind: str) -> list[str]:
    """Per column the clean label of its row of that kind, the first if there are several; ""
    where there is none.
    """
    labels = [""] * (model.m + 1)
    for family in model.families:
        if family.kind == kind:
            labels[family.first : family.stop] = [
                clean_name(label) or f"{r}" for r, label in enumerate(family.labels)
            ]
    at = np.full(model.n, model.m)
    inside = _inside(model, kind)[::-1]  # reversed: the first entry writes last
    at[model.entry_column[inside]] = model.index[inside]
    return [labels[r] for r in at.tolist()]
