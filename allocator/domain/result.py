"""The audited decision with its proof, prices and reasons, as users see it (contract section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
JOB_FIELDS = (
    "job_id",
    "tenant",
    "pool",
    "gpus",
    "batch_size",
    "shared_with",
    "nodes",
    "previous_pool",
    "previous_gpus",
    "action",
    "reason",
    "detail",
    "work_per_s",
    "value",
    "cost_per_hour",
    "accumulation",
    "variant",
)


class Columns(Mapping[str, Sequence[Any]]):
    """The columns of JOB_FIELDS; those that `late` gives are found when one of them is first
    read."""

    def __init__(
        self, known: Mapping[str, Sequence[Any]], late: Callable[[], Mapping[str, Sequence[Any]]]
    ) -> None:
        self._known, self._late = dict(known), late

    def __getitem__(self, name: str) -> Sequence[Any]:
        if name not in self._known and name in JOB_FIELDS:
            self._known |= self._late()
            self._late = dict  # and what it holds may go
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(JOB_FIELDS)

    def __len__(self) -> int:
        return len(JOB_FIELDS)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


@dataclass(frozen=True)
class Result:
    """Everything in plan.json. `jobs` holds one sequence per field of JOB_FIELDS, each with one
    entry per job.

    Proven: objective_value <= best possible <= bound. `bound_by` names who proved the bound:
    "lagrangian" (recomputed here from prices, trusting no solver) or a solver. solver_choice: why
    `auto` picked it, and how it found and proved the plan. Waiting jobs have pool None and gpus 0.
    `reason` and `detail` are found when they are first read.
    """

    snapshot: str
    digest: str
    now_s: float
    interval_s: float
    policy: str
    objective: str
    solver: str | None
    solver_version: str | None
    solver_choice: str | None
    seed: int
    status: str
    termination: str
    fallback: str | None
    objective_value: float
    bound: float
    gap: float
    bound_by: str
    seconds: Mapping[str, float]
    jobs: Mapping[str, Sequence[Any]]
    pools: Sequence[Mapping[str, Any]]
    tenants: Sequence[Mapping[str, Any]]
    budget: Mapping[str, float | None]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The document of contract section 5, in its order of fields."""
        head = {"schema_version": SCHEMA_VERSION}
        body = {name: getattr(self, name) for name in self.__dataclass_fields__}
        body["jobs"] = [
            dict(zip(JOB_FIELDS, row, strict=True))
            for row in zip(*(self.jobs[f] for f in JOB_FIELDS), strict=True)
        ]
        body["warnings"] = list(self.warnings)
        return head | body

    def to_frame(self) -> pd.DataFrame:
        """One row per job, columns JOB_FIELDS."""
        import pandas as pd

        return pd.DataFrame({f: list(self.jobs[f]) for f in JOB_FIELDS})
