"""Speeds from features: what was never seen, how sure a claim is, and the command."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from builders import problem
from places import ROOT

from allocator.cli.main import run
from allocator.domain.problem import Floats
from allocator.engine.decision import decide
from allocator.performance.fit.features import fit_features

GPUS = (4.1, 9.3, 14.0)  # TFLOPS
NOISE = 0.03


def draw(random: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
    """Return features (n, 2), noisy speeds and true speeds of models by 1.394 x + 0.122 seconds,
    x = GFLOPs / TFLOPS, the published line."""
    gflops = np.exp(random.uniform(math.log(0.1), math.log(20), n))
    tflops = random.choice(GPUS, n)
    true = 1 / (1.394 * gflops / tflops + 0.122)
    return np.column_stack([gflops, tflops]), true * np.exp(random.normal(0, NOISE, n)), true


def test_rows_that_were_left_out_are_predicted_as_refits_do() -> None:
    """`held_out` is the prediction of a fit without the row, the choice of its rule included."""
    x, speed, _ = draw(np.random.default_rng(1), 10)
    fit = fit_features(x, speed)
    for i in (0, 4, 9):
        rest = np.arange(10) != i
        alone = fit_features(x[rest], speed[rest]).at(x[[i]])
        assert fit.held_out[i] == pytest.approx(float(alone[0]))
    assert fit.error == pytest.approx(np.mean(np.abs(fit.held_out - speed) / speed))
    assert fit.error_s == pytest.approx(np.mean(np.abs(1 / fit.held_out - 1 / speed)))


def test_new_models_are_predicted_as_well_as_noise_allows() -> None:
    """30 measured models with 3 % noise (a mean error of 2.4 %): new ones are predicted within
    4.5 %, a power law misses by over 12 %, and the held-out error is that of new ones within 2
    points."""
    missed, told, straight = [], [], []
    for seed in range(8):
        random = np.random.default_rng(seed)
        fit = fit_features(*draw(random, 30)[:2])
        x, _, true = draw(random, 200)
        inside = fit.holds(x)
        missed.append(np.mean(np.abs(fit.at(x[inside]) / true[inside] - 1)))
        told.append(fit.error)
        straight.append(fit.straight_error)
    assert np.mean(missed) < 0.045 and np.mean(straight) > 0.12
    assert np.mean(told) == pytest.approx(np.mean(missed), abs=0.02)


@pytest.mark.parametrize("sure", [0.8, 0.9])
def test_claims_are_too_high_as_rarely_as_they_say(sure: float) -> None:
    """20 measured models, 30 draws, 50 new ones of each: their measured speed is below the claim in
    no more than 1 - sure of all, up to three points."""
    over = []
    for seed in range(30):
        random = np.random.default_rng(100 + seed)
        fit = fit_features(*draw(random, 20)[:2])
        x, measured, _ = draw(random, 50)
        inside = fit.holds(x)
        over += (fit.at(x[inside]) / fit.margin(sure) > measured[inside]).tolist()
    assert np.mean(over) <= 1 - sure + 0.03


def test_predicted_rows_of_a_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`spot features --format csv` writes rates.csv; of 60 jobs of unmeasured models planned with
    it at --sure 1, none is claimed faster than the formula says, and none slower by over 25 %."""
    random = np.random.default_rng(7)
    x, speed, true = draw(random, 90)
    x[:2] = [[0.05, 4.1], [25.0, 14.0]]  # measured ones at the ends
    speed[:2] = 1 / (1.394 * x[:2, 0] / x[:2, 1] + 0.122)
    kinds = {4.1: "K80", 9.3: "P100", 14.0: "V100"}
    lines = ["model,gpu_type,work_per_s,gflops,tflops"]
    for i, (g, t) in enumerate(x.tolist()):
        lines.append(f"m{i},{kinds[t]},{speed[i] if i < 30 else ''},{g},{t}")
    (tmp_path / "seen.csv").write_text("\n".join(lines), encoding="utf-8")
    command = ["spot", "features", str(tmp_path / "seen.csv"), "--sure", "1"]
    assert run([*command, "--format", "csv"]) == 0
    rates = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rates) == 60
    table = [r | {"gpus": 1, "work_per_s": float(r["work_per_s"])} for r in rates]
    jobs = [
        {"job_id": f"j{i}", "model": f"m{i}", "remaining_work": 1e4, "max_gpus": 1}
        for i in range(30, 90)
    ]
    pools = [{"pool": k, "gpu_type": k, "gpus": 60} for k in kinds.values()]
    plan = decide(problem(jobs, pools, table))
    claimed = np.array(plan.jobs["work_per_s"]) / true[30:]
    assert claimed.max() <= 1 and claimed.min() > 0.75


def test_the_example_and_what_cannot_be_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = str(ROOT / "data" / "examples" / "features.csv")
    assert run(["spot", "features", example, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["error"] < 0.05 < told["power_law_error"] and told["features"][0] == "model_gflops"
    few = tmp_path / "few.csv"
    few.write_text("model,gpu_type,gpus,work_per_s,x\n" + "m,A,1,2,3\n" * 4, encoding="utf-8")
    assert run(["spot", "features", str(few)]) == 2
    assert "4 measured rows: at least 5 are needed" in capsys.readouterr().err
    few.write_text("model,gpu_type,gpus,work_per_s,x\nm,A,1,2,0\n", encoding="utf-8")
    assert run(["spot", "features", str(few)]) == 3
    assert "x" in capsys.readouterr().err
    assert run(["spot", "features", example, "--sure", "2"]) == 2
