"""Parameter servers: rows with more or fewer of them, against workers and servers one by one."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from builders import problem
from places import ROOT
from worlds import workload

from allocator.cli.main import run
from allocator.engine.decision import decide
from allocator.performance.fit.servers import fit_servers, list_rates
from allocator.simulator import SimulationOptions, simulate

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


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str, int, float, str]]:
    """Rows of rates.csv from measured speeds of one, two and three servers."""
    names = ["m"] * (3 * len(MEASURED))
    servers, workers = (x.reshape(-1) for x in np.meshgrid([1, 2, 3], MEASURED, indexing="ij"))
    pairs = zip(workers.tolist(), servers.tolist(), strict=True)
    speed = np.array([work_through(w, m, seed=i) for i, (w, m) in enumerate(pairs)])
    fits = fit_servers(names, ["A"] * len(names), servers, workers, speed)
    assert [f.cap.cap for f in fits] == pytest.approx([40, 80, 120], rel=0.04)
    return list_rates(fits, range(2, 17))


def test_each_size_has_the_best_number_of_servers(
    rows: list[tuple[str, str, int, float, str]],
) -> None:
    """At 15 sizes, most of them not measured, the plan has the number of servers that is the
    fastest of all where workers queue at servers (or one within 5 % of it), names it, and never
    claims more than 1 % above what they then do; the simulator takes the time that this says."""
    columns = ("model", "gpu_type", "gpus", "work_per_s", "variant")
    table = [dict(zip(columns, row, strict=True)) for row in rows]
    fewest = {}
    for k in range(2, 17):
        job = {"job_id": "j", "model": "m", "min_gpus": k, "max_gpus": k, "sizes": str(k)}
        pool = {"pool": "A", "gpu_type": "A", "gpus": 16, "price_per_gpu_hour": 1}
        round_ = problem([job | {"remaining_work": 1e5}], pools=[pool], rates=table)
        columns_ = decide(round_).jobs
        got = {n: columns_[n][0] for n in ("variant", "work_per_s", "cost_per_hour")}
        true = {m: work_through(k - m, m, seed=99) for m in (1, 2, 3) if m < k <= m + 14}
        m = int(got["variant"].split()[0])
        fewest[k] = m
        assert got["work_per_s"] <= 1.01 * true[m] and got["work_per_s"] >= 0.9 * true[m]
        assert true[m] >= 0.95 * max(true.values())
        assert got["cost_per_hour"] == k
    assert (fewest[4], fewest[8], fewest[14]) == (1, 2, 3)
    job = {"total_work": 4e4, "requested_gpus": 8, "min_gpus": 8, "max_gpus": 8, "restart_s": 0}
    w = workload([job | {"model": "m"}] * 3, pools=[pool | {"gpus": 24}], rates=table)
    s = simulate(w, policy="mip", options=SimulationOptions(prove_every=0, interval_s=300.0))
    took = np.asarray(s.jobs["finished_s"] - s.jobs["started_s"], dtype=np.float64)
    claimed = next(row[3] for row in rows if row[2] == 8 and row[4] == "2 servers")
    assert took == pytest.approx(np.full(3, 4e4 / claimed))
    assert (took >= 0.99 * 4e4 / work_through(6, 2, seed=98)).all()


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


def test_rows_of_the_command_are_those_of_the_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`spot servers --format csv` writes rates.csv of a snapshot; the plan names what each job
    gets."""
    folder = ROOT / "data" / "examples" / "servers"
    command = ["spot", "servers", str(folder / "measured.csv"), "--sizes", "4,8,16"]
    assert run([*command, "--format", "csv"]) == 0
    made = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    shipped = list(csv.DictReader((folder / "rates.csv").open(encoding="utf-8")))
    assert [{**r, "work_per_s": f"{float(r['work_per_s']):.6g}"} for r in made] == shipped
    assert run([*command, "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["fit"]) == 3
    assert run(["solve", str(folder), "--out", str(tmp_path / "plan")]) == 0
    plan = json.loads((tmp_path / "plan" / "plan.json").read_text(encoding="utf-8"))
    assert [j["variant"] for j in plan["jobs"]] == ["1 server", "3 servers"]
    assert run(["spot", "servers", str(folder / "measured.csv"), "--sizes", "4,x"]) == 2
    assert "numbers of GPUs, such as 2,4,8" in capsys.readouterr().err
