"""Slowdowns of pairs of models that were not measured, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import problem
from text_tables import columns

from allocator.performance.interference import fit


def row(
    a: str, b: str, xi_a: float, xi_b: float, gpus: int = 1, gpu_type: str = "A"
) -> dict[str, Any]:
    """A row of sharing.csv."""
    names = "model_a model_b gpu_type gpus slowdown_a slowdown_b"
    return columns(f"{names}: {a} {b} {gpu_type} {gpus} {xi_a} {xi_b}")[0]


def speeds(*models: str, **more: Any) -> list[dict[str, Any]]:
    """Rates of these models on 1 and 2 GPUs of type A: 1 and 2 work per second."""
    return [
        {"model": m, "gpu_type": "A", "gpus": k, "work_per_s": float(k), **more}
        for m in models
        for k in (1, 2)
    ]


def jobs(*parts: tuple[str, float], **more: Any) -> list[dict[str, Any]]:
    """Jobs of one GPU with 4 GB: model and remaining work."""
    return [
        {"model": m, "remaining_work": w, "max_gpus": 1, "memory_gb": 4.0, **more} for m, w in parts
    ]


def test_fitted_slowdowns() -> None:
    """alpha_a beta_b is found exactly from a part of the table and fills the rest with no error; a
    pair of models that no measurement links stays unknown, and so does a model without a row;
    measured values stay."""
    alpha, beta = np.array([0.2, 0.5, 1.0]), np.array([0.4, 1.0, 1.5])
    rows = [
        row("mno"[a], "mno"[b], 1 + alpha[a] * beta[b], 1 + alpha[b] * beta[a])
        for a, b in [(0, 0), (0, 1), (1, 2), (1, 1), (0, 2)]
    ]
    p = problem(jobs(("m", 1)), rates=speeds(*"mnopq"), sharing=[*rows, row("p", "p", 1.7, 1.7)])
    f, code = fit(p), np.array([p.models.index(name) for name in "mnopq"])
    xi, other = f.slowdown(code[:, None], code, np.array(0), np.array(4))
    assert xi[:3, :3] == pytest.approx(1 + alpha[:, None] * beta)
    assert other[:3, :3] == pytest.approx(xi[:3, :3].T) and xi[3, 3] == 1.7
    assert f.error[0] == pytest.approx(0, abs=1e-9)
    assert np.isnan(xi[[0, 3, 4, 0], [3, 0, 0, 4]]).all()
