"""Figures that were measured on real clusters, as the generators use them.

The module has figures only; no line of a trace is copied. Sources:

- Philly, Microsoft's training cluster in 2017 (82,247 jobs of the filtered copy in public
  artefacts)
- Helios, SenseTime's Venus cluster in 2020 (125,214 GPU jobs)
- Alibaba PAI and openb
- published scaling tables (MLPerf, Sia's and Gavel's profiles)
- list prices of 2025, and the spot prices of AWS
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# --- Philly: who asks for how many GPUs. Two virtual clusters of sweeps submit 70 % of all jobs,
# one alone a half.
# all less the others
PHILLY_SWEEPERS: Mapping[int, float] = {1: 0.967, 2: 0.0256, 4: 0.0030, 8: 0.0035, 16: 0.0004}
PHILLY_OTHERS: Mapping[int, float] = {1: 0.850, 2: 0.014, 4: 0.068, 8: 0.058, 16: 0.007, 32: 0.003}
PHILLY_TENANTS: Mapping[str, float] = {
    "sweeps": 0.50,
    "search": 0.20,
    "vision": 0.12,
    "speech": 0.09,
    "language": 0.06,
    "robotics": 0.03,
}
PHILLY_SWEEPING = ("sweeps", "search")

# quantiles of the duration in seconds given the number of GPUs, and the longest
QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
PHILLY_DURATION_S: Mapping[int, tuple[float, ...]] = {
    1: (62, 122, 1_117, 2_716, 8_512, 19_137, 135_399, 3_256_045),
    2: (11, 16, 21, 76, 72_740, 197_062, 523_316, 2_582_803),
    4: (138, 773, 17_410, 89_394, 184_435, 273_968, 907_376, 2_750_674),
    8: (216, 1_876, 23_683, 173_248, 351_982, 525_618, 1_060_498, 4_628_226),
    16: (54, 384, 52_548, 165_483, 340_974, 506_237, 1_156_737, 1_710_643),
    32: (816, 1_182, 14_262, 53_209, 61_700, 76_057, 124_130, 128_924),
}
SHORTEST_S = 5.0
PHILLY_JOBS_PER_H = 41.8

# --- Helios Venus: submissions by hour of the day and day of the week (Monday first)
VENUS_HOURS = (
    26,
    19,
    17,
    11,
    8,
    6,
    5,
    7,
    11,
    23,
    37,
    43,
    34,
    37,
    45,
    48,
    50,
    50,
    37,
    38,
    39,
    39,
    33,
    30,
)
VENUS_WEEKDAYS = (14.7, 15.3, 18.3, 17.3, 13.6, 9.8, 11.1)
VENUS_JOBS_PER_H = 28.8
HELIOS_DURATION_S = {"median": 206, "mean": 6_652}

# --- speed: throughput(n) = t1 n / (1 + c (n - 1)), one GPU against one V100
# log-uniform, from 8-GPU values of published scaling tables
CURVE_C = (0.005, 0.15)
RELATIVE_SPEED: Mapping[str, tuple[float, float]] = {
    "T4": (0.3, 0.5),
    "V100": (1.0, 1.0),
    "A100": (1.7, 3.0),
    "H100": (2.2, 6.0),
}
# --- dollars per GPU-hour: on demand; reserved is taken a third below, spot as listed
ON_DEMAND: Mapping[str, float] = {"T4": 0.53, "V100": 2.95, "A100": 3.67, "H100": 6.88}
SPOT: Mapping[str, float] = {"T4": 0.18, "V100": 0.89, "A100": 1.47, "H100": 2.51}
STARTUP_S = 78  # start of a GPU machine, median of 100
SPOT_REVOCATIONS = 0.076  # per GPU-hour: 0.61 per hour and machine of 8
CHECKPOINT_S, CHECKPOINT_EVERY_S = 10, 900  # of jobs that may be on spot GPUs

# --- Sia (SOSP 2023): the cluster and the applications of its heterogeneous experiments.
# From the public artefact: shares, requests and restart delays of eight workloads; run times and
# 8-GPU speed-ups (yolov3 on T4: 16 GPUs) of the profiles, at the best batch size of each size.


@dataclass(frozen=True)
class SiaPool:
    """GPUs of one type in nodes of `node` GPUs."""

    gpu_type: str
    gpus: int
    node: int


@dataclass(frozen=True)
class Application:
    """An application of the workloads of Sia.

    Attributes
    ----------
    hours : run time on one GPU of each type.
    overhead : c on each type.
    requests : GPUs of the tuned jobs -> share.
    """

    name: str
    share: float
    requests: Mapping[int, float]
    restart_s: float
    hours: Mapping[str, float]
    overhead: Mapping[str, float]


def _by_type(t4: float, rtx: float, a100: float) -> Mapping[str, float]:
    return {"T4": t4, "RTX2080Ti": rtx, "A100": a100}


SIA_POOLS = (SiaPool("T4", 24, 4), SiaPool("RTX2080Ti", 24, 8), SiaPool("A100", 16, 8))
SIA_APPLICATIONS = (
    Application(
        "cifar10",
        0.81,
        {4: 0.06, 6: 0.24, 8: 0.21, 10: 0.08, 12: 0.24, 16: 0.17},
        50.0,
        _by_type(1.98, 0.966, 0.377),
        _by_type(0.094, 0.072, 0.071),
    ),
    Application(
        "deepspeech2",
        0.07,
        {6: 0.28, 8: 0.36, 12: 0.36},
        25.0,
        _by_type(5.74, 3.39, 3.83),
        _by_type(0.089, 0.098, 0.063),
    ),
    Application(
        "bert",
        0.05,
        {6: 0.31, 8: 0.16, 12: 0.31, 16: 0.22},
        120.0,
        _by_type(4.53, 2.20, 0.425),
        _by_type(0.066, 0.036, 0.005),
    ),
    Application(
        "yolov3", 0.05, {4: 1.0}, 80.0, _by_type(10.4, 20.4, 3.82), _by_type(0.16, 0.025, 0.31)
    ),
    Application(
        "imagenet",
        0.02,
        {10: 0.36, 12: 0.25, 14: 0.39},
        250.0,
        _by_type(177.0, 89.0, 40.4),
        _by_type(0.028, 0.032, 0.052),
    ),
)
