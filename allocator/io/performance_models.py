"""Write linear models as MPS, LP or a neutral file of plain arrays (docs/reference/formats.md).

The neutral file is a numpy archive (.npz) of the fields of LinearModel, with the row families as
three arrays. It holds every number exactly, and the solver benchmarks read it.

MPS and LP files are written by HiGHS, with 15 digits of each number. Names that
every reader accepts consist of letters, digits, "_", and at most one ".". A row is named after its
family and label (`quota_team_a`). A column is named after what it stands for (`x_job_7_pool_b_16`:
job, pool, GPUs) as far as the rows of the model show it, and otherwise `c<index>`. If two rows or
columns would have the same name, ".<index>" is added.
"""

import io
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from allocator.domain.findings import input_error
from allocator.errors import UsageError
from allocator.io.plans import write_files
from allocator.objects import Json
from allocator.solvers.highs import write_file
from formulations.model.linear import AT_MOST_ONE, CAPACITY, Ints, LinearModel, RowFamily

FORMAT = "allocator linear model 1"
FIELDS: Mapping[str, type[np.generic]] = {
    **dict.fromkeys(("value", "col_lower", "col_upper"), np.float64),
    "integer": np.bool_,
    **dict.fromkeys(("start", "index"), np.int64),
    **dict.fromkeys(("coef", "lower", "upper"), np.float64),
}
FORMATS = (".mps", ".lp", ".npz")
LABEL = 40  # characters of a label


def check_format(path: Path | str) -> str:
    """Return the suffix of a model file, one of FORMATS; raise UsageError on any other."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f'"{path}": a model is written as {", ".join(FORMATS)}')
    return suffix


def write_model(model: LinearModel, path: Path | str) -> Path:
    """Write the model in the format that the suffix of the path says, whole or not at all.

    The suffixes are .mps, .lp and .npz (neutral).

    Raises
    ------
    UsageError
        On other suffixes, and on models that the format cannot hold (a row whose lower bound is
        above its upper one).
    AllocatorError
        If the file cannot be written.
    """
    path, suffix = Path(path), check_format(path)
    if suffix == ".npz":
        return write_instance(model, path)
    if (crossed := model.lower > model.upper).any():
        row = model.row_name(int(np.argmax(crossed)))
        raise UsageError(f'cannot write "{path}": {row}: lower bound above upper bound')
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"model{suffix}")
        try:
            write_file(model, str(file), column_names(model), row_names(model))
        except ImportError as error:  # OR-Tools is loaded, and one process holds one of both
            raise UsageError(f'cannot write "{path}": {error}; .npz needs no solver') from error
        return write_files(path.parent, {path.name: file.read_bytes()})[path.name]


def write_instance(model: LinearModel, path: Path | str) -> Path:
    """Write the neutral file."""
    path = Path(path)
    arrays: Json = {name: getattr(model, name) for name in FIELDS}
    labels = [str(label) for family in model.families for label in family.labels]
    arrays |= {
        "format": np.array(FORMAT),
        "family_kind": np.array([f.kind for f in model.families], dtype=np.str_),
        "family_rows": np.array([len(f.labels) for f in model.families], dtype=np.int64),
        "row_label": np.array(labels, dtype=np.str_),
    }
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return write_files(path.parent, {path.name: out.getvalue()})[path.name]


def read_instance(path: Path | str) -> LinearModel:
    """Read a neutral file. Raises InvalidInput, which names the array that is wrong."""
    given = arrays_of(path)
    if str(given.get("format", "")) != FORMAT:
        raise input_error(path, f'format is "{given.get("format", "missing")}", not "{FORMAT}"')
    needed = (*FIELDS, "family_kind", "family_rows", "row_label")
    if missing := [name for name in needed if name not in given]:
        raise input_error(path, f"without {', '.join(missing)}")
    for name, kind in FIELDS.items():
        if given[name].ndim != 1 or not np.can_cast(given[name].dtype, kind, "same_kind"):
            what = "numbers" if kind is np.float64 else "whole numbers"
            raise input_error(path, f"{name} is no list of {what}")
    fields: Json = {name: given[name].astype(kind) for name, kind in FIELDS.items()}
    rows = given["family_rows"].astype(np.int64)
    if len(rows) != len(given["family_kind"]) or (rows < 0).any():
        raise input_error(path, "family_rows is not one count per family_kind")
    first = np.concatenate([[0], np.cumsum(rows)]).tolist()
    label = given["row_label"].tolist()
    families = tuple(
        RowFamily(str(k), first[f], label[first[f] : first[f + 1]])
        for f, k in enumerate(given["family_kind"].tolist())
    )
    model = LinearModel(**fields, families=families)
    if fault := _fault(model, int(first[-1]), len(label)):
        raise input_error(path, fault)
    return model


def arrays_of(path: Path | str) -> Json:
    """Return all arrays of a numpy archive, without running code from it.

    Raises InvalidInput, also if there is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise input_error(path, f"no numpy archive: {error}") from error


def _fault(model: LinearModel, rows: int, labels: int) -> str:
    """Return what is wrong with the arrays; '' if nothing is."""
    n, m, z = model.n, model.m, len(model.coef)
    for name in ("col_lower", "col_upper", "integer"):
        if len(getattr(model, name)) != n:
            return f"{name} has {len(getattr(model, name))} entries, value has {n}"
    if len(model.upper) != m or rows != m or labels != m:
        return (
            f"lower, upper, row_label and the sum of family_rows differ: {m}, {len(model.upper)},"
            f" {labels}, {rows}"
        )
    if (
        len(model.start) != n + 1
        or model.start[0] != 0
        or model.start[-1] != z
        or (np.diff(model.start) < 0).any()
    ):
        return f"start does not lead from 0 to {z} in {n} steps"
    if len(model.index) != z or ((model.index < 0) | (model.index >= m)).any():
        return f"index is not {z} rows from 0 to {m - 1}"
    # the entries are mostly sorted already
    entry = np.sort(model.entry_column * max(m, 1) + model.index, kind="stable")
    if (np.diff(entry) == 0).any():
        return "a column has two entries in one row"
    if not (np.isfinite(model.value).all() and np.isfinite(model.coef).all()):
        return "value and coef must be finite"
    if np.isnan(np.concatenate([model.lower, model.upper, model.col_lower, model.col_upper])).any():
        return "a bound is not a number"
    return ""


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
