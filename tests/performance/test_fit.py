"""From observed speeds to speed models: exact without noise, close with it, and the commands fit
and configure.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import snapshot, write_folder
from commands import Output, call
from text_tables import columns

import allocator
from allocator.domain.rules.cluster_rules import curve_parameters
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.errors import InvalidInput
from allocator.io.observations import read_observations
from allocator.options.configure import configure
from allocator.performance import batched, curves
from allocator.performance.fit.choose import ORDER, extend_range, fit, fit_batched
from allocator.performance.fit.observations import Observations
from allocator.performance.fit.similar import guess_curves
from allocator.performance.speed import BETWEEN, MEASURED

SIZES = np.array([1, 2, 4, 8, 16])
TRUTH = {
    "overhead": {"rate_1": 3.0, "c": 0.1},
    "power": {"rate_1": 2.0, "exponent": 0.6},
    "capped": {"rate_1": 1.5, "cap": 8.0},
    "iteration": {"compute": 4.0, "sync": 0.1, "constant": 0.2},
}


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("kind", TRUTH)
def test_the_form_that_made_the_speeds_is_found(kind: str, noise: float) -> None:
    """Five sizes of one curve without noise: its own form is chosen, with its parameters to half a
    percent, and is valid in models.csv. With 3 % noise the fit is within 5 % of the truth at every
    size, and says of itself an error of 1 to 20 %."""
    true = curves.rate(kind, TRUTH[kind], SIZES)
    rate = true * np.exp(np.random.default_rng(0).normal(0, noise, len(SIZES)))
    (found,) = fit(Observations.of(["m"] * len(SIZES), ["A"] * len(SIZES), SIZES, rate))
    if noise:
        assert curves.rate(found.kind, found.parameters, SIZES) == pytest.approx(true, rel=0.05)
        assert 0.01 < found.parameters["error"] < 0.2
        return
    assert found.kind == kind and found.sizes == (1, 2, 4, 8, 16)
    for name, value in TRUTH[kind].items():
        assert found.parameters[name] == pytest.approx(value, rel=5e-3)
    assert curve_parameters(kind, found.parameters)[1] == []
    assert extend_range(found, 2.0).parameters["max_gpus"] == 32


def test_one_size_gets_the_usual_shape() -> None:
    """A speed of 8 on 2 GPUs alone: that speed there, and an error that says nothing is known."""
    (found,) = fit(Observations.of(["m"], ["A"], [2], [8.0]))
    assert curves.rate(found.kind, found.parameters, np.array([2]))[0] == pytest.approx(
        8.0, rel=1e-3
    )
    assert found.parameters["error"] == 0.3


def profile(noise: float = 0.0) -> tuple[dict[str, float], Observations]:
    """A goodput model with two nodes of 4, and its measurements at 6 placements x 5 local
    batches.
    """
    q = {"alpha_c": 0.1, "beta_c": 0.02, "alpha_r": 0.05, "beta_r": 0.01, "alpha_n": 0.3}
    q |= {"beta_n": 0.02, "gamma": 2.0, "batch_0": 4.0, "max_batch": 256.0, "max_local": 32.0}
    q |= {"min_local": 2.0, "gpus_per_node": 4.0}
    k, local = (
        v.reshape(-1) for v in np.meshgrid([1.0, 2, 3, 4, 6, 8], [2.0, 4, 8, 16, 32], indexing="ij")
    )
    nodes = np.ceil(k / 4)
    step = batched.goodput_s(q, k, k * local, np.ones(len(k)), nodes)
    step = step * np.exp(np.random.default_rng(2).normal(0, noise, len(k)))
    useful = np.where(k * local >= 4, (100 + 4.0) / (100 + k * local), np.nan)
    names = ["m"] * len(k)
    return q, Observations.of(
        names,
        names,
        k,
        k * local / step,
        efficiency=useful,
        batch=k * local,
        nodes=nodes,
        compute_s=q["alpha_c"] + q["beta_c"] * local,
    )


def test_goodput_parameters_come_back() -> None:
    """30 exact measurements: steps of placements left out within 2 %, the noise scale 100 within 1
    %, and the batch that the model thinks best is as fast as the best in truth within 3 %.
    With 2 % noise the forms over batches are tried too, and whichever wins predicts sizes left out
    within 6 %."""
    truth, rows = profile()
    left = rows.gpus == 3
    q = fit_batched("goodput", rows.take(~left), rows)
    some = rows.take(left)
    nodes = np.ones(len(some))
    step = batched.goodput_s(q, some.gpus.astype(float), some.batch, some.passes, nodes)
    assert some.batch / step * batched.goodput_efficiency(q, some.batch) == pytest.approx(
        some.useful, rel=0.02
    )
    assert q["noise_scale"] == pytest.approx(100, rel=0.01)
    k = np.array([2.0, 8.0])
    chosen = batched.best("goodput", q, k)
    truth |= {"noise_scale": 100.0}
    assert (
        batched.at("goodput", truth, k, chosen.batch).rate
        >= 0.97 * batched.best("goodput", truth, k).rate
    ).all()
    (found,) = fit(profile(0.02)[1])
    assert set(found.tried) == set(ORDER) and found.mean < 0.06


def test_what_was_never_measured_is_guessed_from_the_others() -> None:
    """B is twice as fast as A for two models: the third, measured on A only, is guessed at twice
    its speed there.
    """
    rows = [
        (m, t, k, r * f * k**0.8)
        for m, r in (("x", 1.0), ("y", 3.0), ("z", 7.0))
        for t, f in (("A", 1), ("B", 2))
        for k in (1, 2, 4)
        if (m, t) != ("z", "B")
    ]
    model, kind, gpus, rate = map(list, zip(*rows, strict=True))
    (guess,) = guess_curves(Observations.of(model, kind, gpus, rate))
    assert (guess.model, guess.gpu_type) == ("z", "B")
    assert guess.parameters["rate_1"] == pytest.approx(14.0, rel=0.02)
    assert guess.parameters["exponent"] == pytest.approx(0.8, rel=0.02)


def on_a(jobs: dict[str, Any], pool: dict[str, Any], **tables: Any) -> Snapshot:
    """A snapshot of a job j of model m, on 8 GPUs of type A at 1 $/h."""
    pools = [{"pool": "a", "price_per_gpu_hour": 1, **pool}]
    return snapshot([{"job_id": "j", "max_gpus": 8, **jobs}], pools, **tables)


OBSERVED = "model,gpu_type,gpus,work_per_s\nm,A,1,1\nm,A,2,1.9\nm,A,4,3.5\n"


def test_fit_writes_models_that_a_snapshot_takes(tmp_path: Path, capsys: Output) -> None:
    """models.csv of `fit --out`, next to jobs and pools only, gives the job its speed; stdout is
    the same file.
    """
    (tmp_path / "o.csv").write_text(OBSERVED)
    code, out, _ = call(capsys, f"fit {tmp_path / 'o.csv'} --out {tmp_path / 'f'} --format csv")
    text = (tmp_path / "f" / "models.csv").read_text()
    assert (code, out) == (0, text)
    (row,) = csv.DictReader(io.StringIO(text))
    job = {"max_gpus": 4, "remaining_work": 3600}
    snap = on_a(job, {"gpus": 4, "price_per_gpu_hour": 2}, rates=(), models=[row])
    p = validate(snap)
    ways = configure(p, "j")
    assert ways.gpus.tolist() == [1, 2, 4]
    assert ways.hours == pytest.approx([1 / 1.0, 1 / 1.9, 1 / 3.5], rel=0.05)
    assert ways.cost == pytest.approx(2 * ways.gpus * ways.hours)
    assert ">measured</text>" in (tmp_path / "f" / "fit.svg").read_text()
    report = list(csv.DictReader((tmp_path / "f" / "fit.csv").open()))
    assert report[0]["sizes"] == "1|2|4" and float(report[0]["mean_error"]) < 0.1


def test_faults_of_observations_are_located(tmp_path: Path, capsys: Output) -> None:
    """Every fault at once by file and line, exit 3; unknown form or no batches, exit 2; nothing
    written."""
    (tmp_path / "o.csv").write_text("model,gpu_type,gpus,work_per_s\nm,A,x,1\nm,A,2,-1\n")
    code, _, said = call(capsys, f"fit {tmp_path / 'o.csv'} --out {tmp_path / 'f'}")
    assert code == 3 and not (tmp_path / "f").exists()
    for fault in ('o.csv:2: gpus "x" is not a whole number', "o.csv:3: work_per_s -1 is below 0"):
        assert fault in said
    (tmp_path / "o.csv").write_text(OBSERVED)
    for form in ("powr", "goodput"):
        assert call(capsys, f"fit {tmp_path / 'o.csv'} --forms {form}")[0] == 2
    for form in ("sia", "gavel", "mlperf"):
        with pytest.raises(InvalidInput):
            read_observations(tmp_path / "o.csv", form)


def test_published_formats(tmp_path: Path) -> None:
    """A folder of profiles, throughputs as packed JSON, a table of times to train. Four times the
    batch in half the steps is half as useful."""
    folder = tmp_path / "profiles" / "app"
    folder.mkdir(parents=True)
    for name, text in {
        "placements-x": "placement,local_bsz,step_time,sync_time\n1,8,0.5,0.1\n22,8,1.0,0.6\n",
        "validation-8": "progress,iteration\n100,100\n",
        "validation-32": "progress,iteration\n100,50\n",
    }.items():
        (folder / f"{name}.csv").write_text(text)
    rows = read_observations(tmp_path / "profiles", "sia")
    found = (rows.gpus, rows.nodes, rows.batch, rows.rate, rows.compute_s, rows.efficiency)
    expected = [[1, 4], [1, 2], [8, 32], [16, 32], [0.4, 0.4], [1.0, 0.5]]
    assert np.array(found) == pytest.approx(np.array(expected))
    speeds = {"v100": {"('lm', 2)": {"null": 3.0}, "('lm', 4)": {"null": 0.0}}}
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(json.dumps(speeds).encode()))
    rows = read_observations(tmp_path / "t.json.gz", "gavel")
    assert (rows.models, rows.gpu_types) == (("lm",), ("v100",))
    assert (rows.gpus.tolist(), rows.rate.tolist()) == ([2], [3.0])
    head = "round,benchmark,accelerator,accelerators,ttt_min_olympic\n"
    (tmp_path / "m.csv").write_text(head + "v1,bert,X,8,10\nv1,bert,X,8,5\nv1,bert,X,,5\n")
    rows = read_observations(tmp_path / "m.csv", "mlperf")
    assert rows.gpus.tolist() == [8] and rows.rate == pytest.approx([1 / 300])


def test_configure_by_hand(tmp_path: Path, capsys: Output) -> None:
    """3600 units of work: 2 GPUs at 2/s 0.5 h and 1 $; 4 GPUs at 2.5/s 0.4 h and 1.6 $; the row of
    4 that needs 40 GB on GPUs of 16 GB is no way. The deadline is that of the job. Limits that
    nothing meets: exit code 4; unknown jobs, and formats that do not go together: 2."""
    names = "gpu_type gpus work_per_s batch_size memory_gb"
    snap = on_a(
        {"min_gpus": 2, "max_gpus": 4, "remaining_work": 3600, "deadline_s": 1620},
        {"memory_gb": 16},
        rates=columns(f"{names}: A 2 2 8 10; A 4 2.5 8 10; A 4 9 64 40"),
    )
    write_folder(snap, tmp_path)
    code, out, _ = call(capsys, f"configure {tmp_path} j --format json --out {tmp_path / 'o'}")
    told = json.loads(out)
    assert (code, told["cheapest"]["gpus"], told["deadline_hours"]) == (0, 4, 0.45)
    assert (tmp_path / "o" / "configure.csv").read_text().startswith("pool,gpus,batch_size")
    assert "knee, fastest, cheapest: 4 x a" in (tmp_path / "o" / "configure.svg").read_text()
    wrong = {"j --deadline 0.1": 4, "nobody": 2, f"j --profile --out {tmp_path / 'p'}": 2}
    found = [call(capsys, f"configure {tmp_path} {words}")[0] for words in wrong]
    assert found == [*wrong.values()]


def test_how_sure_a_speed_is() -> None:
    """The speeds on 2 and on 8 GPUs were measured, and that on 4 GPUs lies between them."""
    snap = on_a({"min_gpus": 2}, {}, rates=columns("gpu_type gpus work_per_s: A 2 2; A 8 6"))
    ways = configure(validate(snap), "j")
    assert ways.error[np.argsort(ways.gpus)].tolist() == [MEASURED, BETWEEN, MEASURED]


def test_batches_of_a_curve() -> None:
    """Where nothing was measured every size has several batches, the best of them on the front;
    corners are tried first. A plan names the batch that its speed supposes."""
    q = profile()[0] | {"noise_scale": 100.0}
    curve = {"model": "m", "gpu_type": "A", "kind": "goodput", "parameters": json.dumps(q)}
    snap = on_a({"remaining_work": 36000}, {}, rates=(), models=[curve])
    ways = configure(validate(snap), "j")
    best = batched.best("goodput", q, np.array([8.0]))
    mine = ways.gpus == 8
    assert mine.sum() > 3 and ways.rate[mine].max() == pytest.approx(best.rate[0], rel=0.01)
    assert ways.front[mine].any() and not ways.measured.any()
    jobs = allocator.solve(snap).jobs
    gpus, batch = int(jobs["gpus"][0]), int(jobs["batch_size"][0])
    best = batched.best("goodput", q, np.array([float(gpus)]))
    assert batch == best.batch[0] and jobs["work_per_s"][0] == pytest.approx(best.rate[0])
