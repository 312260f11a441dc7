"""Draw docs/pictures/fits.svg and docs/pictures/configure.svg from generated measurements.

# needs the extra "plots" (matplotlib)
python scripts/pictures/draw_fits.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot, Table
from allocator.io.fits import parameters
from allocator.options.configure import configure
from allocator.performance import batched, curves
from allocator.performance.fit.choose import SpeedFit, fit
from allocator.performance.fit.observations import Observations
from allocator.report.charts import configure as configure_pictures, fit as fit_pictures

OUT = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SEED, NOISE = 7, 0.03
SIZES = np.array([1, 2, 4, 8, 16, 32])
CURVES = {
    "vision": ("overhead", {"rate_1": 40.0, "c": 0.02}),
    "translation": ("power", {"rate_1": 9.0, "exponent": 0.7}),
    "small, asynchronous": ("capped", {"rate_1": 11.4, "cap": 44.0}),
    "fixed batch": ("iteration", {"compute": 0.5, "sync": 0.002, "constant": 0.01}),
}
GOODPUT = {
    "alpha_c": 0.05,
    "beta_c": 0.012,
    "alpha_r": 0.03,
    "beta_r": 0.004,
    "alpha_n": 0.12,
    "beta_n": 0.006,
    "gamma": 2.5,
    "batch_0": 32.0,
    "max_batch": 2048.0,
    "max_local": 128.0,
    "min_local": 4.0,
    "gpus_per_node": 8.0,
    "noise_scale": 600.0,
}


def main() -> None:
    """Draw both pictures."""
    rng = np.random.default_rng(SEED)
    fitted: list[SpeedFit] = []
    for name, (kind, q) in CURVES.items():
        rate = curves.rate(kind, q, SIZES) * np.exp(rng.normal(0, NOISE, len(SIZES)))
        fitted += fit(Observations.of([name] * len(SIZES), ["V100"] * len(SIZES), SIZES, rate))
    fitted += fit(batches(rng, np.array([1, 2, 4, 8, 16, 24, 32])), ["goodput"])
    OUT.mkdir(exist_ok=True)
    (OUT / "fits.svg").write_bytes(fit_pictures.draw(fitted))
    known = fitted[-1]
    snapshot = Snapshot(
        "drawn",
        {},
        {
            "jobs.csv": _table(
                "jobs.csv",
                {
                    "job_id": "language",
                    "model": known.model,
                    "submitted_s": "0",
                    "remaining_work": "2000000",
                    "max_gpus": "32",
                },
            ),
            "pools.csv": _table(
                "pools.csv",
                {
                    "pool": "on-demand",
                    "gpu_type": "V100",
                    "gpus": "32",
                    "price_per_gpu_hour": "3.0",
                },
            ),
            "models.csv": _table(
                "models.csv",
                {
                    "model": known.model,
                    "gpu_type": "V100",
                    "kind": known.kind,
                    "parameters": json.dumps(parameters(known.kind, known.parameters)),
                },
            ),
        },
    )
    ways = configure(validate(snapshot), "language")
    chosen = {"knee": ways.knee, "fastest": ways.fastest(), "cheapest": ways.cheapest()}
    (OUT / "configure.svg").write_bytes(configure_pictures.draw(ways, chosen))


def batches(rng: np.random.Generator, sizes: Ints) -> Observations:
    """Return measured steps of a goodput model at every size and five local batches."""
    k, local = (
        v.reshape(-1).astype(np.float64)
        for v in np.meshgrid(sizes, [8, 16, 32, 64, 128], indexing="ij")
    )
    batch: Floats = k * local
    good = (batch >= 32) & (batch <= 2048)
    k, local, batch = k[good], local[good], batch[good]
    nodes = np.ceil(k / 8)
    step = batched.goodput_s(GOODPUT, k, batch, np.ones(len(k)), nodes) * np.exp(
        rng.normal(0, NOISE, len(k))
    )
    names = ["language"] * len(k)
    return Observations.of(
        names,
        ["V100"] * len(k),
        k,
        batch / step,
        batch=batch,
        nodes=nodes,
        efficiency=batched.goodput_efficiency(GOODPUT, batch),
        compute_s=GOODPUT["alpha_c"] + GOODPUT["beta_c"] * local,
    )


def _table(file: str, row: dict[str, str]) -> Table:
    return Table(file, {name: [value] for name, value in row.items()}, range(2, 3))


if __name__ == "__main__":
    main()
