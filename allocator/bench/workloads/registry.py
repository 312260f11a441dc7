"""The generators of workloads by name.

    generate("reproduction", seed=3, load=0.30, jobs=250)

A generator is a function (seed, load, jobs, gpus=None) -> GeneratedWorkload in a module of the same
name. To add one, write this module and add one entry here.
"""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

from allocator.errors import UsageError

if TYPE_CHECKING:
    from allocator.bench.workloads.parts.tables import GeneratedWorkload

MOST_JOBS = 5_000_000


class MakeWorkload(Protocol):
    """A function that makes a workload.

    Parameters
    ----------
    seed : of every draw.
    load : in the unit of the generator.
    jobs : number of jobs.
    gpus : GPUs of the cluster; None lets the generator choose.
    """

    def __call__(
        self, *, seed: int, load: float, jobs: int, gpus: int | None = None
    ) -> GeneratedWorkload: ...


@dataclass(frozen=True)
class Generator:
    """A generator.

    Attributes
    ----------
    about : one line.
    load, jobs : defaults.
    loads : the loads of benchmarks.
    unit : what `load` counts.
    """

    name: str
    about: str
    load: float
    loads: tuple[float, ...]
    jobs: int
    unit: str

    @property
    def make(self) -> MakeWorkload:
        """Return the function, which is loaded on first use."""
        return cast(
            MakeWorkload, getattr(importlib.import_module(f"{__package__}.{self.name}"), self.name)
        )


OFFERED = "GPU-hours demanded at the request / GPU-hours there are while jobs are submitted"
V100_HOURS = "V100-hours demanded / V100-hours there are while jobs are submitted"
SPOT_HOURS = "GPU-hours demanded at the request / spot GPU-hours there are while jobs are submitted"
GENERATORS: Mapping[str, Generator] = {
    g.name: g
    for g in (
        Generator(
            "reproduction",
            "64 equal GPUs, Poisson arrivals, Amdahl speed-ups: the case of the published MIP "
            "allocator",
            0.30,
            (0.24, 0.30, 0.36),
            250,
            "jobs per minute",
        ),
        Generator(
            "bursty",
            "heavy tails and sweeps of near-identical jobs, six tenants, calibrated on Philly",
            1.0,
            (0.7, 1.0, 1.4),
            300,
            OFFERED,
        ),
        Generator(
            "diurnal",
            "days, nights and weekends as on Helios Venus, five teams",
            0.8,
            (0.6, 0.8, 1.0),
            300,
            OFFERED,
        ),
        Generator(
            "mixed",
            "T4, V100, A100 and H100 pools, speeds by model and type, prices, a budget, three"
            " tenants",
            1.0,
            (0.7, 1.0, 1.3),
            200,
            V100_HOURS,
        ),
        Generator(
            "heterogeneous",
            "T4, RTX 2080 Ti and A100 pools, five applications with measured speeds and restart "
            "delays: Sia's evaluation",
            20,
            (20, 40),
            160,
            "jobs per hour",
        ),
        Generator(
            "spot",
            "reserved V100s and spot A100s that come and go, prices that wander, checkpoints",
            0.8,
            (0.6, 0.8, 1.0),
            150,
            V100_HOURS,
        ),
        Generator(
            "zones",
            "spot V100s in five zones of two regions that fail together, reserved and on-demand"
            " ones besides them, deadlines",
            0.6,
            (0.4, 0.6, 0.8),
            150,
            OFFERED,
        ),
        Generator(
            "deadlines",
            "deadlines to keep on spot V100s in five zones that fail together, or on demand at"
            " three times the price",
            0.7,
            (0.35, 0.7, 1.4),
            120,
            SPOT_HOURS,
        ),
        Generator(
            "due",
            "V100s and A100s of one's own, four jobs of five with a deadline, tight to loose",
            1.6,
            (1.0, 1.6, 2.2),
            300,
            V100_HOURS,
        ),
        Generator(
            "exposure",
            "deadlines, for three tenants with guarantees and limits on what they have on spot in a"
            " zone",
            0.7,
            (0.35, 0.7, 1.4),
            120,
            SPOT_HOURS,
        ),
        Generator(
            "interactive",
            "sessions that come at random and have GPUs kept for them, among batch jobs that fill "
            "the cluster",
            1.0,
            (0.7, 1.0, 1.3),
            300,
            OFFERED,
        ),
        Generator(
            "sharing",
            "gang jobs of fixed sizes that fit GPUs two by two, with measured speeds and memory and"
            " drawn slowdowns",
            1.0,
            (0.8, 1.0, 1.3),
            240,
            OFFERED,
        ),
    )
}


def generate(
    name: str,
    *,
    seed: int = 0,
    load: float | None = None,
    jobs: int | None = None,
    gpus: int | None = None,
    nodes_per_rack: int | None = None,
) -> GeneratedWorkload:
    """Return the workload of a generator; the same arguments give the same bytes.

    Parameters
    ----------
    name : of the generator.
    seed : of every draw.
    load : in the unit of the generator; None for its default.
    jobs : number of jobs; None for the default.
    gpus : GPUs of the cluster; None for the default.
    nodes_per_rack : GPUs are on nodes, so many in a rack; None for pools without nodes.

    Raises
    ------
    UsageError
        For an unknown name or an argument out of range.
    """
    if name not in GENERATORS:
        near = difflib.get_close_matches(name, GENERATORS, 1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'unknown generator "{name}"{hint} (known: {", ".join(GENERATORS)})')
    generator = GENERATORS[name]
    load = generator.load if load is None else load
    jobs = generator.jobs if jobs is None else jobs
    for argument, value, least, most in (
        ("load", load, 1e-3, 1e6),
        ("jobs", jobs, 1, MOST_JOBS),
        ("seed", seed, 0, math.inf),
        ("gpus", gpus or 1, 1, 10_000_000),
        ("nodes_per_rack", nodes_per_rack or 1, 1, 10_000_000),
    ):
        if not least <= value <= most:
            raise UsageError(f"{argument} is {value:g}; it must be from {least:g} to {most:g}")
    made = generator.make(seed=seed, load=load, jobs=jobs, gpus=gpus)
    options = "" if gpus is None else f" --gpus {gpus}"
    if nodes_per_rack is not None:
        from allocator.bench.workloads.parts.nodes import with_nodes

        made = with_nodes(made, nodes_per_rack)
        options += f" --nodes-per-rack {nodes_per_rack}"
    return replace(made, about=_about(generator, made, seed, options))


def _about(generator: Generator, made: GeneratedWorkload, seed: int, options: str) -> str:
    count = len(made.tables["workload.csv"]["job_id"])
    gpus = sum(made.tables["pools.csv"]["gpus"])
    return (
        f"# {made.name}\n\n{generator.about[0].upper()}{generator.about[1:]}.\n\n{count} jobs"
        f" submitted in {made.window_s / 3_600:.1f} hours, {gpus} GPUs, load {made.load:g}"
        f" ({generator.unit}).\nMade by `allocator generate {generator.name} --seed {seed} --load"
        f" {made.load!r} --jobs {count}{options}`; no line comes from a real cluster.\n"
    )
