"""The generators of workloads by name, as figures.toml lists them.

    generate("reproduction", seed=3, load=0.30, jobs=250)

A generator is a function of its name, from Asked to GeneratedWorkload, in a module of MODULES.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from allocator.bench.workloads.parts.figures import FIGURES
from allocator.domain.findings import did_you_mean
from allocator.errors import UsageError

if TYPE_CHECKING:
    from allocator.bench.workloads.parts.tables import GeneratedWorkload

MOST_JOBS = 5_000_000
MODULES = ("clusters", "markets", "sharing")


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


GENERATORS: Mapping[str, Generator] = {
    name: Generator(name, f["about"], f["load"], tuple(f["loads"]), f["jobs"], f["unit"])
    for name, f in FIGURES.items()
    if "about" in f
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
        near = did_you_mean(name, GENERATORS)
        raise UsageError(f'unknown generator "{name}"{near} (known: {", ".join(GENERATORS)})')
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
    from allocator.bench.workloads.parts.draw import Asked

    modules = (importlib.import_module(f"{__package__}.{module}") for module in MODULES)
    function = next(candidate for m in modules if (candidate := getattr(m, name, None)))
    workload: GeneratedWorkload = function(Asked(name, seed, load, jobs, gpus))
    options = "" if gpus is None else f" --gpus {gpus}"
    if nodes_per_rack is not None:
        workload = workload.with_nodes(nodes_per_rack)
        options += f" --nodes-per-rack {nodes_per_rack}"
    there = sum(workload.tables["pools.csv"]["gpus"])
    about = (
        f"# {name}\n\n{generator.about[0].upper()}{generator.about[1:]}.\n\n{jobs} jobs"
        f" submitted in {workload.window_s / 3_600:.1f} hours, {there} GPUs, load {load:g}"
        f" ({generator.unit}).\nMade by `allocator generate {name} --seed {seed} --load"
        f" {load!r} --jobs {jobs}{options}`; no line comes from a real cluster.\n"
    )
    return replace(workload, about=about)
