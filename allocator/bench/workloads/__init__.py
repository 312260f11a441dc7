"""Seeded generators of workloads, calibrated on measured clusters.

    generate("bursty", seed=1, load=1.0, jobs=300)

The package imports quickly: the list of generators needs no numpy.
"""

from allocator.bench.workloads.registry import GENERATORS, Generator, generate

__all__ = ["GENERATORS", "Generator", "generate"]
