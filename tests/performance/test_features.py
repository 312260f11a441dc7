"""Speeds from features: what was never seen, how sure a claim is, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from commands import Output, call
from places import ROOT

from allocator.domain.problem import Floats
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


def test_claims_are_too_high_as_rarely_as_they_say() -> None:
    """20 measured models, 8 draws, 50 new ones of each: their measured speed is below the claim in
    no more than 1 - sure of all, up to three points. Predictions are within 5 %, as the held-out
    error says up to 2.5 points; a power law misses by over 12 %."""
    missed, told, straight = [], [], []
    over: dict[float, list[bool]] = {0.8: [], 0.9: []}
    for seed in range(8):
        random = np.random.default_rng(100 + seed)
        fit = fit_features(*draw(random, 20)[:2])
        x, measured, true = draw(random, 50)
        inside = fit.holds(x)
        said = fit.at(x[inside])
        for sure, claims in over.items():
            claims.extend((said / fit.margin(sure) > measured[inside]).tolist())
        missed.append(np.mean(np.abs(said / true[inside] - 1)))
        told.append(fit.error)
        straight.append(fit.straight_error)
    assert all(np.mean(claims) <= 1 - sure + 0.03 for sure, claims in over.items())
    assert np.mean(missed) < 0.05 and np.mean(straight) > 0.12
    assert np.mean(told) == pytest.approx(np.mean(missed), abs=0.025)


def test_the_example_and_what_cannot_be_fitted(tmp_path: Path, capsys: Output) -> None:
    """Predicted rows are those of rates.csv. Exit code 2 for too few rows and a wrong option, 3 for
    a value that has no logarithm."""
    example = ROOT / "data" / "examples" / "features.csv"
    told = json.loads(call(capsys, f"spot features {example} --format json")[1])
    assert told["error"] < 0.05 < told["power_law_error"] and told["features"][0] == "model_gflops"
    rates = call(capsys, f"spot features {example} --sure 1 --format csv")[1].splitlines()
    assert rates[0].startswith("model,gpu_type,gpus,work_per_s") and len(rates) > 1
    few = tmp_path / "few.csv"
    for row, code, words in (
        ("m,A,1,2,3\n" * 4, 2, "4 measured rows: at least 5 are needed"),
        ("m,A,1,2,0\n", 3, "few.csv:2: x"),
    ):
        few.write_text("model,gpu_type,gpus,work_per_s,x\n" + row, encoding="utf-8")
        found, _, said = call(capsys, "spot", "features", few)
        assert found == code and words in said
    assert call(capsys, f"spot features {example} --sure 2")[0] == 2
