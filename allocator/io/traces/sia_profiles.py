"""Turn measured step times and training curves of Sia and Pollux into a table of speeds.

Each application has a folder with these files:

- `placements-M.csv` for each kind of machine M: placement, local_bsz, step_time, sync_time; a
  placement is one digit per node
- `scalability-M.csv` for each kind of machine M: num_nodes, num_replicas, local_bsz, step_time,
  sync_time
- `validation-B.csv` for each total batch size B: one row per epoch with progress, iteration, ...

Work is counted in progress: the steps at the smallest batch size B0 that would do the same. With
batch B on k GPUs and s accumulation passes, the local batch is b = ceil(B / (k s)), and a step
takes T = step + (s - 1)(step - sync). These times are interpolated linearly in b between the
measured ones. The whole training of P progress takes I(B) steps, which come from the training
curves. So

    work_per_s = (B / B0) / T      efficiency = P B0 / (I(B) B)      useful speed = P / (I(B) T)

Sources: Qiao et al., "Pollux", OSDI 2021, section 3 (goodput, accumulation); Jayaram Subramanya et
al., "Sia", SOSP 2023. docs/traces.md says what differs from their simulators.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allocator.domain.problem import Floats
from allocator.errors import Fault
from allocator.io.traces.text import (
    CsvRows,
    csv_rows,
    find_packed,
    input_error,
    integer,
    number,
    raise_if,
    text,
)

# columns that are read of placements-M.csv, of scalability-M.csv, and of validation-B.csv
PLACEMENTS = (text("placement"), integer("local_bsz"), number("step_time"), number("sync_time"))
SCALABILITY = (
    integer("num_nodes"),
    integer("num_replicas"),
    integer("local_bsz"),
    number("step_time"),
    number("sync_time"),
)
VALIDATION = (number("progress"), number("iteration"))
# total batch sizes tried between the smallest and the largest, evenly spaced on a log scale
BATCHES = 50


@dataclass(frozen=True)
class Training:
    """What the training of one application takes.

    Arrays have shape (b,): ascending total batch sizes, and the steps to the end at each of them.
    """

    progress: float
    batch: Floats
    steps: Floats

    def steps_at(self, batch: Floats) -> Floats:
        """Return the steps to the end at any batch size between the smallest and the largest.

        The result is interpolated linearly.
        """
        return np.interp(batch, self.batch, self.steps)


def read_training(folder: Path) -> Training:
    """Read the training of one application. Raises InvalidInput.

    Its work is the least progress with which any batch size ends.
    """
    ends: dict[int, tuple[float, float]] = {}
    for path in sorted([*folder.glob("validation-*.csv"), *folder.glob("validation-*.csv.gz")]):
        size = path.name.removeprefix("validation-").partition(".")[0]
        if not size.isdigit():
            raise input_error(path, "its name does not end in a batch size: validation-128.csv")
        rows = csv_rows(path, VALIDATION)
        ends[int(size)] = float(rows["progress"][-1]), float(rows["iteration"][-1])
        if not min(ends[int(size)]) > 0:
            raise input_error(path, "ends without progress or steps", rows.lines[-1])
    if not ends:
        raise input_error(folder, "has no validation-BATCH.csv")
    sizes = sorted(ends)
    return Training(
        min(ends[b][0] for b in sizes),
        np.array(sizes, dtype=np.float64),
        np.array([ends[b][1] for b in sizes]),
    )


def steps(folder: Path, machine: str, per_node: int) -> dict[int, Floats]:
    """Return measured steps by size, for jobs packed on as few nodes as possible.

    Those of a size are (3, m): ascending local batch, seconds of a step, and seconds of its
    communication. {} if the machine has no tables. A size above one node consists of full nodes
    and a rest. If one batch was measured more than once, the mean counts. Raises InvalidInput.
    """
    placements = find_packed(folder, f"placements-{machine}.csv")
    if placements is None:
        return {}
    by_size: dict[int, dict[int, list[tuple[float, float]]]] = {}
    rows = read_placements(placements)
    for i, place in enumerate(rows["placement"]):
        digits = sorted(map(int, place), reverse=True)
        k = sum(digits)
        if digits == pack_on_nodes(k, per_node):
            _add(by_size, k, rows, i)
    measured = set(by_size)
    scalability = find_packed(folder, f"scalability-{machine}.csv")
    if scalability is not None:
        rows = csv_rows(scalability, SCALABILITY)
        for i, (nodes, k) in enumerate(
            zip(rows["num_nodes"].tolist(), rows["num_replicas"].tolist(), strict=True)
        ):
            if k not in measured and nodes == len(pack_on_nodes(k, per_node)):
                _add(by_size, k, rows, i)
    return {
        k: np.array([(b, *np.mean(pairs, axis=0)) for b, pairs in sorted(by_size[k].items())]).T
        for k in sorted(by_size)
    }


def read_placements(path: Path) -> CsvRows:
    """Return the rows of placements-M.csv. Raises InvalidInput."""
    rows = csv_rows(path, PLACEMENTS)
    faults = [
        Fault(str(path), line, f'placement "{place}" is not one digit per node')
        for line, place in zip(rows.lines, rows["placement"], strict=True)
        if not (place.isascii() and place.isdigit())
    ]
    raise_if(path, faults)
    return rows


def pack_on_nodes(k: int, per_node: int) -> list[int]:
    """Return the GPUs on each node for k GPUs on as few nodes as possible, full nodes first."""
    full, rest = divmod(k, per_node)
    return [per_node] * full + [rest] * (rest > 0)


def rank_batches(
    train: Training, measured: Floats, k: int, batches: Sequence[float] | None
) -> list[tuple[Any, ...]]:
    """Return (work_per_s, efficiency, total batch, passes) of what k GPUs can run.

    The fastest useful speed comes first. A local batch above the largest measured one is split into
    accumulation passes. One GPU needs two passes for any batch above the smallest, since the
    gradient noise is estimated from more than one gradient.

    Parameters
    ----------
    train : training curves of the application.
    measured : steps of this size.
    k : GPUs.
    batches : batch sizes to try. The default is BATCHES values between the smallest and the largest
    batch of the training curves, and the batches of the curves themselves.
    """
    first, last = train.batch[[0, -1]].tolist()
    local_batch, *seconds_of = measured
    tried = (
        np.union1d(np.round(np.geomspace(first, last, BATCHES)), train.batch)
        if batches is None
        else np.array(batches, dtype=np.float64)
    )
    local = np.ceil(tried / k - 1e-8)
    passes = np.ceil(local / local_batch[-1] - 1e-8)
    if k == 1:
        passes = np.where(tried > first, np.maximum(passes, 2), passes)
    part = np.ceil(local / passes - 1e-8)
    able = (part >= local_batch[0]) & (tried >= first) & (tried <= last)
    tried, passes, part = tried[able], passes[able], part[able]
    step_s, sync_s = (np.interp(part, local_batch, y) for y in seconds_of)
    seconds = step_s + (passes - 1) * np.maximum(step_s - sync_s, 0)
    work_per_s = tried / first / seconds
    efficiency = np.minimum(1.0, train.progress * first / (train.steps_at(tried) * tried))
    order = np.argsort(-work_per_s * efficiency, kind="stable")
    whole = (x.astype(np.int64) for x in (tried, passes))
    ranked = (x[order].tolist() for x in (work_per_s, efficiency, *whole))
    return list(zip(*ranked, strict=True))


def _add(
    by_size: dict[int, dict[int, list[tuple[float, float]]]], k: int, rows: CsvRows, i: int
) -> None:
    local = int(rows["local_bsz"][i])
    pair = (float(rows["step_time"][i]), float(rows["sync_time"][i]))
    if local >= 1 and pair[0] > 0:
        by_size.setdefault(k, {}).setdefault(local, []).append(pair)
