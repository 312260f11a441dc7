"""A verified change of the input, as places and texts of cells.

Places and texts are those of `allocator whatif --set`. The change can be applied to the files
exactly as it is written; see `allocator.changed`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BUDGET_OPTION = "--budget"  # the place of a budget that was given as an option of the command
EMPTY = {
    "gpu_types": "any",
    "sizes": "by rule",
    "resizes_left": "no limit",
}  # what an empty cell means


@dataclass(frozen=True)
class VerifiedChange:
    """One change of the input that gives a job more, verified by deciding again.

    Parameters
    ----------
    kind : str
        What is changed: a name of `limits.KINDS`.
    job_id : str
        The job that it helps.
    values, before : mapping of str to str
        Place -> text of the cell with the change and without it, as `allocator whatif --set` and
        `allocator.changed` take them; "" is the default. The place "--budget" is that option of the
        command.
    gpus, pool, shared_with
        What the job gets with the change.
    """

    kind: str
    job_id: str
    values: Mapping[str, str]
    before: Mapping[str, str]
    gpus: int
    pool: str
    shared_with: str | None = None

    @property
    def what(self) -> str:
        """The change in words: "weight 1.5 instead of 1"."""
        return " and ".join(self._describe_place(place) for place in self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the sentence as "text"."""
        return dataclasses.asdict(self) | {"text": str(self)}

    def __str__(self) -> str:
        colocated = f" next to {self.shared_with}" if self.shared_with else ""
        return f"{self.what}: it would get {self.gpus} x {self.pool}{colocated}"

    def _describe_place(self, place: str) -> str:
        table, _, rest = place.partition(".")
        name, _, column = rest.rpartition(".")
        new, old = (
            cell or EMPTY.get(column, "none") for cell in (self.values[place], self.before[place])
        )
        if not name or (table == "jobs" and name == self.job_id):
            return f"{column or place} {new} instead of {old}"
        owner = "pool" if table == "interactive" else table.removesuffix("s")
        return f'{column} {new} of {owner} "{name}" instead of {old}'
