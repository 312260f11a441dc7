"""The forms of requests and answers; columns come from the schema of the files."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from allocator.domain.schema.columns import (
    JOBS,
    QUOTAS,
    RESERVATIONS,
    TENANTS,
    ColumnKind,
    TableSchema,
)
from allocator.domain.schema.workload_columns import CHANGEABLE
from allocator.objects import Json
from allocator.queue.costs import DailyCost
from allocator.queue.jobs.submit import DURATIONS, MOMENTS, SET
from allocator.server.views.answer import Answer, Form
from allocator.server.views.jobs import JobAnswer
from allocator.server.views.rounds import Round

MOST_TEXT = 10_000  # characters of one text
MOST_PARTS = 1000  # entries of a list
TIMES = (*MOMENTS, *DURATIONS, "at_s", "until_s")  # which may be texts such as 6h
TYPES: Mapping[ColumnKind, Any] = {
    ColumnKind.INTEGER: int,
    ColumnKind.NUMBER: float,
    ColumnKind.BOOLEAN: bool,
    ColumnKind.INTEGERS: list[int],
    ColumnKind.TEXTS: list[str],
}


class Body(Form):
    """A body of a request: no other fields, and only finite numbers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, str_max_length=MOST_TEXT)


def _show_example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class Problem(BaseModel):
    """What is wrong: a code for programs, a text for people, and every fault of an input."""

    code: str = Field(examples=["not_found"])
    message: str = Field(examples=['the queue has no job "bert-9"'])
    faults: list[str] = []


class ErrorAnswer(Answer):
    """The answer to a request that is refused."""

    error: Problem


def _columns(schema: TableSchema, names: Sequence[str], required: Sequence[str] = ()) -> Any:
    """Return the form of a body with these columns; None is the default of a column."""
    fields: Json = {}
    for name in names:
        column = schema.column(name)
        kind = float | str if name in TIMES else TYPES.get(column.kind, str)
        is_list = column.kind in (ColumnKind.INTEGERS, ColumnKind.TEXTS)
        limit = MOST_PARTS if is_list else None
        how = Field(... if name in required else None, description=column.doc, max_length=limit)
        fields[name] = (kind if name in required else kind | None, how)
    return create_model("Columns", __base__=Body, **fields)


_SUBMITTED: Any = _columns(JOBS, SET, required=("model", "total_work", "max_gpus"))


class JobSubmission(_SUBMITTED):  # type: ignore[misc]
    """One job to submit: columns of jobs.csv, its key and its command."""

    model_config = _show_example(
        job_id="bert-7",
        model="bert",
        total_work=9e6,
        max_gpus=8,
        command=["python", "train.py"],
    )

    key: str | None = None
    """the same again is the same job, not a second one"""
    command: list[str] = Field(default=[], max_length=MOST_PARTS)
    """the program and its arguments"""
    environment: dict[str, str] = Field(default={})
    """environment of the command"""
    workdir: str = ""
    """where the command runs"""


class JobChange(_columns(JOBS, CHANGEABLE)):  # type: ignore[misc]
    """Columns of a job to change; null is the default."""

    model_config = _show_example(weight=2, max_gpus=4)


class Submitted(Answer):
    """The job that is in the queue, and whether this request added it."""

    job_id: str = Field(examples=["bert-7"])
    new: bool
    warnings: list[str] = Field(default=[])


class JobsAnswer(Answer):
    """A part of a list of jobs, in the order of submission."""

    jobs: list[JobAnswer]
    next: str | None
    """`after` of the next part; null: this is the last"""


class Counts(Answer):
    """Jobs of all tenants by state."""

    counts: dict[str, int] = Field(examples=[{"queued": 3, "running": 2}])


class Pool(Form):
    """A pool of GPUs."""

    model_config = ConfigDict(extra="allow")

    pool: str
    gpu_type: str
    gpus: int
    """GPUs that may be used"""
    used: int
    """GPUs that jobs hold"""


class PoolsAnswer(Answer):
    """All pools."""

    pools: list[Pool]


class PoolChange(Body):
    """How many GPUs of a pool may be used."""

    model_config = _show_example(gpus=6)

    gpus: int = Field(ge=0)


class Node(Form):
    """A node, and the jobs on it that the caller may see."""

    model_config = ConfigDict(extra="allow")

    node: str
    pool: str
    gpus: int
    used: int
    state: str
    """up, drain or down"""
    labels: dict[str, str]
    jobs: list[str]


class NodesAnswer(Answer):
    """Nodes of all pools."""

    nodes: list[Node]


class TenantsAnswer(Answer):
    """Tenants and their quotas, as rows of tenants.csv and quotas.csv."""

    tenants: list[Json]
    quotas: list[Json]


class QuotaChange(_columns(QUOTAS, [c.name for c in QUOTAS.columns[1:]])):  # type: ignore[misc]
    """A quota on GPUs of a type or of a pool; neither: on all."""


class TenantChange(_columns(TENANTS, [c.name for c in TENANTS.columns[1:]])):  # type: ignore[misc]
    """The columns of a tenant that change, and one of its quotas. Null stands for the default."""

    model_config = _show_example(max_gpus=24)

    quota: QuotaChange | None = None
    """a quota on GPUs of a type or of a pool"""


class ReservationsAnswer(Answer):
    """Reservations, as rows of reservations.csv; times are unix seconds."""

    reservations: list[Json]


_RESERVED: Any = _columns(RESERVATIONS, [c.name for c in RESERVATIONS.columns[1:]])


class ReservationChange(_RESERVED):  # type: ignore[misc]
    """The columns of a reservation that change. Times may be texts such as 6h: from now on."""

    model_config = _show_example(pool="a100", gpus=8, at_s="6h", until_s="10h", tenant="vision")


class Changed(Answer):
    """What was changed, and warnings about it."""

    changed: list[str]
    warnings: list[str] = Field(default=[])


class RoundsAnswer(Answer):
    """A part of the journal, the newest round first."""

    rounds: list[Round]
    next: int | None
    """`before` of the next part; null: this is the last"""


class PlanAnswer(Answer):
    """The last plan: plan.json; a member sees its own jobs."""

    number: int
    """of the round"""
    at_s: float
    plan: Json
    jobs: list[Json]


class WhatIfRequest(Body):
    """Other values, by place."""

    model_config = _show_example(values={"pools.a100.gpus": "12"})

    values: dict[str, str | int | float] = Field(
        min_length=1,
        max_length=50,
        description="as --set of `allocator whatif`: pools.a100.gpus, budget_per_hour,"
        " tenants.red.max_gpus, jobs.bert-1.weight, nodes.n1.state",
    )


class SpendAnswer(Answer):
    """What tenants used by day, the oldest day first; a member sees its own."""

    days: list[DailyCost]
