"""Parameter servers: rows with more or fewer of them, against workers and servers one by one."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from builders import problem
from commands import Output, call
from places import ROOT

from allocator.engine.decision import decide
from allocator.performance.fit.servers import fit_servers, list_rates

COMPUTE_S, UPDATE_S = 0.08, 0.025  # of a step of a worker, and of an update on one server
MEASURED = (1, 2, 4, 8, 14)


def work_through(workers: int, servers: int, seed: int, updates: int = 12_000) -> float:
    """Return the updates a second of workers that compute, queue at the servers, and go on.

    Each update is of all parameters, of which each server has a share. Steps vary by 20 %.
    """
    random = np.random.default_rng(seed)
    seconds = COMPUTE_S * random.gamma(25, 1 / 25, updates + workers)
    ready = sorted(seconds[:workers].tolist())
    free = first = 0.0
    for i in range(updates):
        free = max(free, ready.pop(0)) + UPDATE_S / servers
        again = free + seconds[workers + i]
        at = np.searchsorted(ready, again)
        ready.insert(int(at), again)
        first = free if i == updates // 10 else first
    return (updates - 1 - updates // 10) / (free - first)


def test_each_size_has_the_best_number_of_servers() -> None:
    """At four sizes, two of them not measured, the plan has the number of servers that is the
    fastest of all where workers queue at servers (or one within 5 % of it), names it, and never
    claims more than 1 % above what they then do."""
    servers, workers = (x.reshape(-1) for x in np.meshgrid([1, 2, 3], MEASURED, indexing="ij"))
    pairs = zip(workers.tolist(), servers.tolist(), strict=True)
    measured = np.array([work_through(w, m, seed=i) for i, (w, m) in enumerate(pairs)])
    names = ["m"] * len(measured)
    fits = fit_servers(names, ["A"] * len(names), servers, workers, measured)
    assert [f.cap.cap for f in fits] == pytest.approx([40, 80, 120], rel=0.04)
    columns = ("model", "gpu_type", "gpus", "work_per_s", "variant")
    table = [dict(zip(columns, row, strict=True)) for row in list_rates(fits, range(2, 17))]
    fewest = {}
    pool = {"pool": "A", "gpu_type": "A", "gpus": 16, "price_per_gpu_hour": 1}
    for k in (4, 8, 11, 14):
        job = {"min_gpus": k, "max_gpus": k, "sizes": str(k), "remaining_work": 1e5}
        found = decide(problem([job], [pool], table)).jobs
        m, speed = int(found["variant"][0].split()[0]), found["work_per_s"][0]
        true = {m: work_through(k - m, m, seed=99) for m in (1, 2, 3) if m < k <= m + 14}
        fewest[k] = m
        assert 0.9 * true[m] <= speed <= 1.01 * true[m] and found["cost_per_hour"][0] == k
        assert true[m] >= 0.95 * max(true.values())
    assert (fewest[4], fewest[8], fewest[14]) == (1, 2, 3)


def test_a_server_that_was_not_measured_is_not_offered() -> None:
    """Speeds between measured numbers of workers are on the line between theirs, fewer workers are
    in proportion, more have no speed. One number of workers is no measurement of a limit."""
    n = np.array([1, 2, 4, 8])
    (fit,) = fit_servers(["m"] * 4, ["A"] * 4, 0 * n + 2, 2 * n, np.array([8.0, 16, 19, 21]))
    assert fit.rate(np.array([2, 3, 4, 8, 10, 18, 19])) == pytest.approx(
        [np.nan, 4.0, 8.0, 17.5, 19.0, 21.0, np.nan], nan_ok=True
    )
    with pytest.raises(ValueError, match="m on A with 0 servers: a cap needs speeds"):
        fit_servers(["m"], ["A"], n[:1] * 0, n[:1], np.array([5.0]))


def test_rows_of_the_command_are_those_of_the_example(capsys: Output) -> None:
    """`spot servers --format csv` writes rates.csv of a snapshot."""
    folder = ROOT / "data" / "examples" / "servers"
    command = f"spot servers {folder / 'measured.csv'} --sizes"
    code, out, _ = call(capsys, f"{command} 4,8,16 --format csv")
    made = list(csv.DictReader(io.StringIO(out)))
    shipped = list(csv.DictReader((folder / "rates.csv").open(encoding="utf-8")))
    assert code == 0
    assert [{**r, "work_per_s": f"{float(r['work_per_s']):.6g}"} for r in made] == shipped
    told = call(capsys, f"{command} 4,8,16 --format json")[1]
    assert len(json.loads(told)["fit"]) == 3
    code, _, said = call(capsys, f"{command} 4,x")
    assert code == 2 and "write whole numbers with commas, such as 2,4,8" in said
