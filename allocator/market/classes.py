"""Classes of jobs that GPUs are rented for (classes.csv), and the GPUs that can be rented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Floats, Ints
from allocator.domain.schema.cells import picked
from allocator.domain.schema.rental_columns import OF_CLASS
from formulations.rental.speed_curves import TABLE, speed_ups
from formulations.rental.widths import FREE, JobClasses

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class RentablePools:
    """Pools that can be rented: names, GPU types, dollars per GPU-hour and GPUs, (P,) each.

    GPUs are inf where not given; they limit the width of jobs where they cost nothing.
    """

    pool: tuple[str, ...]
    gpu_type: tuple[str, ...]
    price: Floats
    gpus: Floats

    def cheapest(self, gpu_type: str) -> int:
        """Return the index of the cheapest pool of the type ("" = any), -1 without one."""
        places = [p for p, t in enumerate(self.gpu_type) if gpu_type in ("", t)]
        return min(places, key=lambda p: float(self.price[p]), default=-1)


@dataclass(frozen=True)
class RentalClasses:
    """Hold M classes of jobs, with R >= M rows, by class.

    Attributes
    ----------
    class_id : (M,)
        Names.
    arrivals_per_hour, mean_work_gpu_hours, weight : (M,)
        Arrivals per hour, mean hours on one GPU, and weight.
    of : (R,)
        Class of each row.
    gpu_type : (R,)
        GPU type, "" = any.
    kind : (R,)
        Kind of the speed-up, an index into KINDS.
    parameter : (R,)
        Parameter of the kind, nan for tables.
    points : (R,)
        Points of tables, as (GPUs, speed-up).
    relative_speed : (R,)
        Speed relative to the reference GPU.
    max_gpus : (R,)
        Largest width, inf = no limit.
    rented : RentablePools, optional
        The pools; None: GPUs have no price.
    """

    class_id: tuple[str, ...]
    arrivals_per_hour: Floats
    mean_work_gpu_hours: Floats
    weight: Floats
    of: Ints
    gpu_type: tuple[str, ...]
    kind: Ints
    parameter: Floats
    points: tuple[Points, ...]
    relative_speed: Floats
    max_gpus: Floats
    rented: RentablePools | None = None

    def pool(self, row: int) -> int:
        """Return the cheapest pool for a row, -1 without pools."""
        return -1 if self.rented is None else self.rented.cheapest(self.gpu_type[row])

    def model(self, dollars: bool) -> JobClasses:
        """Return the classes for formulations/rental.

        With `dollars` the budget is in dollars per hour (there must be pools), else in GPUs.
        """
        price = np.ones(len(self.of))
        most = self.max_gpus
        if dollars and self.rented is not None:
            pool = [self.pool(r) for r in range(len(self.of))]
            price = np.maximum(self.rented.price[pool], FREE)
            least = np.array([min((k for k, _ in points), default=1) for points in self.points])
            most = np.where(
                price > FREE, most, np.maximum(np.minimum(most, self.rented.gpus[pool]), least)
            )
        speed = speed_ups(
            self.kind.tolist(),
            self.parameter.tolist(),
            self.points,
            self.relative_speed.tolist(),
            most.tolist(),
        )
        return JobClasses(
            self.arrivals_per_hour,
            self.arrivals_per_hour * self.mean_work_gpu_hours,
            self.weight,
            self.of,
            price,
            speed,
        )


def parse_pools(table: ParsedTable, dollars: bool) -> RentablePools:
    """Return the pools of a table; faults are added to it.

    With `dollars`, a free pool must give its number of GPUs.
    """
    price = np.asarray(table["price_per_gpu_hour"], dtype=np.float64)
    gpus = np.where(table.given("gpus"), table["gpus"], np.inf)
    if dollars:
        table.faults(
            table.ok("price_per_gpu_hour") & (price <= 0) & ~table.given("gpus"),
            "price_per_gpu_hour 0 without gpus: no budget limits how wide jobs get there; give the"
            " number of its gpus",
        )
    return RentablePools(tuple(table["pool"]), tuple(table["gpu_type"]), price, gpus)


def classes(table: ParsedTable, rented: RentablePools | None = None) -> RentalClasses:
    """Return the classes in order of their first rows; faults are added to the table.

    The result has no meaning if there are faults.
    """
    kind = np.asarray(table["kind"])
    parameter = np.asarray(table["parameter"], dtype=np.float64)
    is_table = kind == TABLE
    known = table.ok("kind")
    most = np.where(table.given("max_gpus"), table["max_gpus"], np.inf).astype(np.float64)
    for column, of in (("parameter", ~is_table), ("points", is_table)):
        given = table.given(column)
        table.faults(known & of & ~given, f"kind {{kind}} needs {column}")
        table.faults(known & ~of & given, f"kind {{kind}} has no {column}; leave it empty")
    table.faults(
        known & ~is_table & table.ok("parameter", "max_gpus") & (parameter == 1) & np.isinf(most),
        "parameter 1 is a speed-up without end, whose best width is infinite; give max_gpus",
    )
    points = [
        _parse_points(table, i, most[i]) if is_table[i] and known[i] else ()
        for i in range(len(table))
    ]
    if rented is not None:
        _check_types(table, rented)
    of = table.columns["class_id"].factors[1]
    first = np.unique(of, return_index=True)[1]
    _check_agreement(table, first[of].tolist())
    order = np.argsort(of, kind="stable")
    first_row = {name: np.asarray(table[name], dtype=np.float64)[first] for name in OF_CLASS}
    return RentalClasses(
        tuple(table.distinct("class_id")),
        **first_row,
        of=of[order],
        gpu_type=tuple(picked(table["gpu_type"], order)),
        kind=kind[order].astype(np.int64),
        parameter=parameter[order],
        points=tuple(picked(points, order)),
        relative_speed=np.asarray(table["relative_speed"], dtype=np.float64)[order],
        max_gpus=most[order],
        rented=rented,
    )


def _check_agreement(table: ParsedTable, first: Sequence[int]) -> None:
    """Find rows that contradict the first row of their class, (R,)."""
    for column in OF_CLASS:
        value, ok = table[column], table.ok(column)
        table.faults(
            ok & ok[first] & (value != value[first]),
            lambda i, column=column: (  # type: ignore[misc]
                f"{column} {table.text(column, i)} differs from {table.text(column, first[i])} in"
                f" line {table.lines[first[i]]}: rows of class {table.shown('class_id', i)} must"
                " agree in it"
            ),
        )


def _check_types(table: ParsedTable, rented: RentablePools) -> None:
    unknown = np.array([rented.cheapest(t) < 0 for t in table["gpu_type"]], dtype=bool)
    table.faults(
        unknown & table.ok("gpu_type"),
        lambda i: (
            f"gpu_type {quote(table['gpu_type'][i])} is in no"
            f" pool{did_you_mean(table['gpu_type'][i], rented.gpu_type)}"
        ),
    )


def _parse_points(table: ParsedTable, row: int, most: float) -> Points:
    """Return the points of a cell, by width; faults are added to the table."""
    text = table["points"][row]
    out: dict[int, float] = {}
    for part in text.split("|") if text else ():
        width, _, speed = part.partition(":")
        try:
            k = float(width)
            s = float(speed)
        except ValueError:
            table.fault(
                row,
                f"points {quote(text)}: {quote(part)} is not GPUs:speed-up, such as 2:1.9",
            )
            return ()
        wrong = (
            "the number of GPUs must be whole, at least 1"
            if not (k >= 1 and k == int(min(k, 1e15)))
            else (
                "the speed-up must be above 0 and finite"
                if not 0 < s < 1e30
                else (
                    "the speed-up of one GPU is 1, since work is counted in hours on it"
                    if k == 1 and s != 1
                    else f"{k:.0f} GPUs appear twice"
                    if int(k) in out
                    else ""
                )
            )
        )
        if wrong:
            table.fault(row, f"points {quote(text)}: {quote(part)}: {wrong}")
            return ()
        out[int(k)] = s
    if out and min(out) > most:
        table.fault(row, f"points {quote(text)}: no size is within max_gpus {most:.0f}")
    return tuple(sorted(out.items()))
