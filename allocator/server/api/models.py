"""The forms of requests and answers; columns come from the schema of the files."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from allocator.domain.schema.columns import JOBS, QUOTAS, TENANTS, ColumnKind, TableSchema
from allocator.queue.costs import DailyCost
from allocator.queue.jobs.change import CHANGEABLE
from allocator.queue.jobs.submit import DURATIONS, MOMENTS, SET
from allocator.server.views.answer import Answer
from allocator.server.views.jobs import JobAnswer
from allocator.server.views.rounds import Round

MOST_TEXT = 10_000  # characters of one text
MOST_PARTS = 1000  # entries of a list
TYPES: Mapping[ColumnKind, Any] = {
    ColumnKind.INTEGER: int,
    ColumnKind.NUMBER: float,
    ColumnKind.BOOLEAN: bool,
    ColumnKind.INTEGERS: list[int],
    ColumnKind.TEXTS: list[str],
}


class Body(BaseModel):
    """A body of a request: no other fields, and only finite numbers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, str_max_length=MOST_TEXT)


class Problem(BaseModel):
    """What is wrong: a code for programs, a text for people, and every fault of an input."""

    code: str = Field(examples=["not_found"])
    message: str = Field(examples=['the queue has no job "bert-9"'])
    faults: list[str] = []


class ErrorAnswer(Answer):
    """The answer to a request that is refused."""

    error: Problem


def _fields(schema: TableSchema, names: Sequence[str], required: Sequence[str] = ()) -> Any:
    """Return columns as fields of a body; None is the default of the column."""
    out = {}
    for name in names:
        column = schema.column(name)
        kind = float | str if name in (*MOMENTS, *DURATIONS) else TYPES.get(column.kind, str)
        is_list = column.kind in (ColumnKind.INTEGERS, ColumnKind.TEXTS)
        limit = MOST_PARTS if is_list else None
        if name in required:
            out[name] = (kind, Field(description=column.doc, max_length=limit))
        else:
            out[name] = (kind | None, Field(None, description=column.doc, max_length=limit))
    return out


JobSubmission = create_model(
    "JobSubmission",
    __base__=Body,
    __doc__="One job to submit: columns of jobs.csv, its key and its command.",
    **_fields(JOBS, SET, required=("model", "total_work", "max_gpus")),
    key=(
        str | None,
        Field(None, description="the same again is the same job, not a second one"),
    ),
    command=(
        list[str],
        Field([], max_length=MOST_PARTS, description="the program and its arguments"),
    ),
    environment=(dict[str, str], Field({}, description="environment of the command")),
    workdir=(str, Field("", description="where the command runs")),
)
JobSubmission.model_config["json_schema_extra"] = {
    "examples": [
        {
            "job_id": "bert-7",
            "model": "bert",
            "total_work": 9e6,
            "max_gpus": 8,
            "command": ["python", "train.py"],
        }
    ]
}
JobChange = create_model(
    "JobChange",
    __base__=Body,
    __doc__="Columns of a job to change; null is the default.",
    **_fields(JOBS, CHANGEABLE),
)
JobChange.model_config["json_schema_extra"] = {"examples": [{"weight": 2, "max_gpus": 4}]}


class Submitted(Answer):
    """The job that is in the queue, and whether this request added it."""

    job_id: str = Field(examples=["bert-7"])
    new: bool
    warnings: list[str] = Field(default=[])


class JobsAnswer(Answer):
    """A part of a list of jobs, in the order of submission."""

    jobs: list[JobAnswer]
    next: str | None = Field(description="`after` of the next part; null: this is the last")


class Counts(Answer):
    """Jobs of all tenants by state."""

    counts: dict[str, int] = Field(examples=[{"queued": 3, "running": 2}])


class Pool(BaseModel):
    """A pool of GPUs."""

    model_config = ConfigDict(extra="allow")

    pool: str
    gpu_type: str
    gpus: int = Field(description="GPUs that may be used")
    used: int = Field(description="GPUs that jobs hold")


class PoolsAnswer(Answer):
    """All pools."""

    pools: list[Pool]


class PoolChange(Body):
    """How many GPUs of a pool may be used."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"gpus": 6}]})

    gpus: int = Field(ge=0)


class Node(BaseModel):
    """A node, and the jobs on it that the caller may see."""

    model_config = ConfigDict(extra="allow")

    node: str
    pool: str
    gpus: int
    used: int
    state: str = Field(description="up, drain or down")
    labels: dict[str, str]
    jobs: list[str]


class NodesAnswer(Answer):
    """Nodes of all pools."""

    nodes: list[Node]


class TenantsAnswer(Answer):
    """Tenants and their quotas, as rows of tenants.csv and quotas.csv."""

    tenants: list[dict[str, Any]]
    quotas: list[dict[str, Any]]


QuotaChange: Any = create_model(
    "QuotaChange",
    __base__=Body,
    __doc__="A quota on GPUs of a type or of a pool; neither: on all.",
    **_fields(QUOTAS, [c.name for c in QUOTAS.columns if c.name != "tenant"]),
)
OF_QUOTA: Any = (
    QuotaChange | None,
    Field(None, description="a quota on GPUs of a type or of a pool"),
)
TenantChange = create_model(
    "TenantChange",
    __base__=Body,
    __doc__="Columns of a tenant to change, and one of its quotas; null is the default.",
    **_fields(TENANTS, [c.name for c in TENANTS.columns if c.name != "tenant"]),
    quota=OF_QUOTA,
)
TenantChange.model_config["json_schema_extra"] = {"examples": [{"max_gpus": 24}]}


class Changed(Answer):
    """What was changed, and warnings about it."""

    changed: list[str]
    warnings: list[str] = Field(default=[])


class RoundsAnswer(Answer):
    """A part of the journal, the newest round first."""

    rounds: list[Round]
    next: int | None = Field(description="`before` of the next part; null: this is the last")


class PlanAnswer(Answer):
    """The last plan: plan.json; a member sees its own jobs."""

    number: int = Field(description="of the round")
    at_s: float
    plan: dict[str, Any]
    jobs: list[dict[str, Any]]


class WhatIfRequest(Body):
    """Other values, by place."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"values": {"pools.a100.gpus": "12"}}]}
    )

    values: dict[str, str | int | float] = Field(
        min_length=1,
        max_length=50,
        description="as --set of `allocator whatif`: pools.a100.gpus, budget_per_hour,"
        " tenants.red.max_gpus, jobs.bert-1.weight, nodes.n1.state",
    )


class SpendAnswer(Answer):
    """What tenants used by day, the oldest day first; a member sees its own."""

    days: list[DailyCost]
