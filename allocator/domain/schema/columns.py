"""The schema of all files and columns of a snapshot: names, types, ranges, defaults, meaning.

Reading, validating, writing, `allocator schema` and the documentation are all derived from
`TABLES`. The rules between columns are those of docs/reference/rules.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from formulations.objectives import BUILT_IN


class ColumnKind(StrEnum):
    """The kind of a column: how the text of a cell is parsed."""

    TEXT = "text"
    INTEGER = "integer"  # "8" or "8.0"
    NUMBER = "number"  # finite decimal number
    BOOLEAN = "boolean"  # true/false, yes/no, 1/0 in any case
    CHOICE = "choice"  # one of `choices`
    INTEGERS = "integers"  # "1|2|4"
    TEXTS = "texts"  # "A100|V100"
    JSON = "json"  # a JSON object
    OBJECTIVE = "objective"  # names of `choices`, summed or ranked: domain/objectives.py


# work per second, at every size, of a model without any known speed
ASSUMED_RATE = 1.0
RULE = "by rule"  # default that depends on other columns or files; see `doc`
MOST_GPUS = 10_000_000  # more GPUs than any cluster has; larger numbers are typing errors
# largest absolute value of a number: products of three stay finite
MOST_NUMBER = 1e30
LEAST_NUMBER = 1e-30  # least absolute value of a number other than 0, for the same reason
MOST_INTEGER = 10**15  # whole numbers up to this one are exact as floats


@dataclass(frozen=True)
class Column:
    """Describe one column of a table.

    `low` and `high` are inclusive bounds, and `above` is a strict lower bound. The default None
    means that an empty cell has no value.
    """

    name: str
    kind: ColumnKind
    doc: str
    required: bool = False
    default: Any = None
    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableSchema:
    """Describe one file.

    The columns `key` identify a row, so that no two rows agree in all of them. If `key` is empty,
    rows may repeat.
    """

    file: str
    doc: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    required: bool = False

    def column(self, name: str) -> Column:
        return next(c for c in self.columns if c.name == name)


def _text(name: str, doc: str, **more: Any) -> Column:
    return Column(name, ColumnKind.TEXT, doc, **more)


def _number(name: str, doc: str, **more: Any) -> Column:
    return Column(name, ColumnKind.NUMBER, doc, **more)


def _gpus(name: str, doc: str, low: int = 1, **more: Any) -> Column:
    return Column(name, ColumnKind.INTEGER, doc, low=low, high=MOST_GPUS, **more)


def _batch(name: str, doc: str, **more: Any) -> Column:
    return Column(name, ColumnKind.INTEGER, doc, low=1, high=MOST_INTEGER, **more)


JOBS = TableSchema(
    "jobs.csv",
    "every job that is queued, running or paused",
    (
        _text("job_id", "unique name", required=True),
        _text("model", "key into rates.csv and models.csv", required=True),
        _number("submitted_s", "time of submission, on the clock of now_s", required=True),
        _number("remaining_work", "work left, in the model's unit", required=True, above=0),
        _number(
            "total_work", "whole work of the job; default remaining_work", default=RULE, above=0
        ),
        _text("tenant", "who pays and whose quota counts", default="default"),
        Column(
            "state",
            ColumnKind.CHOICE,
            "what the job does now",
            default="queued",
            choices=("queued", "running", "paused", "held"),
        ),
        _text("pool", "pool it holds GPUs of now; set exactly when running"),
        _gpus("gpus", "GPUs it holds now; set exactly when running"),
        _gpus("min_gpus", "smallest size", default=1),
        _gpus("max_gpus", "largest size", required=True),
        _gpus("requested_gpus", "size its user asked for; default min_gpus", default=RULE),
        Column(
            "sizes",
            ColumnKind.INTEGERS,
            "allowed sizes; default: powers of two up to gpus_per_node, then whole nodes",
            default=RULE,
            low=1,
            high=MOST_GPUS,
        ),
        Column("gpu_types", ColumnKind.TEXTS, "allowed GPU types; default any", default=RULE),
        _number("weight", "scales its value in the objective", default=1.0, above=0),
        _number("deadline_s", "absolute time by which it should be done"),
        Column(
            "preemptible",
            ColumnKind.BOOLEAN,
            "false: while running it may not be paused, moved or resized",
            default=True,
        ),
        _number(
            "restart_s",
            "pause when its allocation changes while running; default restart_s of config.toml",
            default=RULE,
            low=0,
        ),
        Column(
            "resizes_left",
            ColumnKind.INTEGER,
            "changes it can still stand; 0: only keep or pause",
            low=0,
        ),
        _number("memory_gb", "memory per GPU, for sharing", above=0),
        _number("checkpoint_s", "cost of a checkpoint", default=0.0, low=0),
        _number("checkpoint_every_s", "interval of checkpoints", above=0),
        Column(
            "after", ColumnKind.TEXTS, "starts when these jobs are done (no longer in the snapshot)"
        ),
        _gpus(
            "max_spot_gpus",
            "most GPUs it may hold in spot pools; 0: never there; default no limit",
            low=0,
        ),
        Column(
            "interactive",
            ColumnKind.BOOLEAN,
            "true: a session of somebody who waits for it; GPUs are kept for these in the "
            "pools of interactive.csv",
            default=False,
        ),
        Column(
            "shrinkable",
            ColumnKind.BOOLEAN,
            "true: it gives back GPUs above min_gpus at short notice and may therefore hold "
            "shrinkable_share of those kept for interactive jobs",
            default=False,
        ),
        Column(
            "best_effort",
            ColumnKind.BOOLEAN,
            "true: it has no guarantee: no rule of stability protects it, it may run next to"
            ' guaranteed jobs where sharing is "best_effort", and isolation protects these from it',
            default=False,
        ),
        _number(
            "every_s",
            "periodic: it comes again every so many seconds, as a job of its own (queue and"
            " workloads)",
            above=0,
        ),
        Column(
            "times",
            ColumnKind.INTEGER,
            "how many times a periodic job comes in all; default in a queue: until cancelled",
            low=1,
            high=100_000,
        ),
        Column(
            "synchronous",
            ColumnKind.BOOLEAN,
            "true: a revoked GPU stops the job, which falls back to its last checkpoint; "
            "false: only the share of the lost worker is lost until it is replaced",
            default=True,
        ),
        Column(
            "modes",
            ColumnKind.TEXTS,
            "ways to keep its workers in step, of which each option has the best: bulk, backup:K"
            " (K spare workers), replicated:R (R replicas of each), asynchronous:E (share E of its"
            " work counts); default bulk, or asynchronous where synchronous is false",
        ),
        _number("attained_gpu_s", "GPU-seconds it has held so far", default=0.0, low=0),
        Column(
            "restarts",
            ColumnKind.INTEGER,
            "starts after the first and changes of its allocation so far",
            default=0,
            low=0,
        ),
        _gpus(
            "largest_gpus",
            "most GPUs it has held so far; default what it holds now",
            low=0,
            default=RULE,
        ),
        _text(
            "shared_with",
            "running job on whose GPUs it runs as a second one; same pool and gpus. Several jobs,"
            ' "a|b", where max_primaries allows it: all of their GPUs, and others of the pool',
        ),
        _number("cpus_per_gpu", "CPUs of the node that each of its GPUs needs", default=0.0, low=0),
        _number(
            "host_memory_gb_per_gpu",
            "memory of the node that each of its GPUs needs",
            default=0.0,
            low=0,
        ),
        _number(
            "gpu_fraction",
            "share of one GPU, below 1, for a job of max_gpus 1; several such jobs fill one GPU of"
            " a node of nodes.csv; default: whole GPUs",
            above=0,
            high=1,
        ),
        _text(
            "placement",
            "packed: on as few nodes as its size needs; spread: on as many as possible; same_rack:"
            " all nodes in one rack; prefer_rack: if possible; or another level of [topology]",
            default="packed",
        ),
        _number(
            "target_loss",
            "the job is done when its training loss is as low; what is left is then expected from"
            " the losses that it reports, and total_work is the most that it does",
            above=0,
        ),
        _number(
            "loss_work",
            "whole work of the job until target_loss, as the losses so far say: median; a"
            " controller fills it in",
            above=0,
        ),
        _number(
            "loss_error",
            "standard deviation of ln(true / expected work left) of loss_work",
            low=0,
            high=3,
        ),
    ),
    key=("job_id",),
    required=True,
)

POOLS = TableSchema(
    "pools.csv",
    "identical GPUs that are bought and placed alike",
    (
        _text("pool", "unique name", required=True),
        _text("gpu_type", "key into rates.csv", required=True),
        _gpus("gpus", "GPUs usable now", low=0, required=True),
        _gpus("gpus_per_node", "GPUs of one node", default=8),
        Column(
            "market",
            ColumnKind.CHOICE,
            "how it is bought",
            default="reserved",
            choices=("reserved", "on_demand", "spot"),
        ),
        _number("price_per_gpu_hour", "US dollars", default=0.0, low=0),
        _number(
            "price_per_gb_hour",
            "US dollars for a GB of GPU memory that a job needs, besides the price of its GPUs",
            default=0.0,
            low=0,
        ),
        _text("region", "where it stands"),
        _number(
            "startup_s",
            "added to the pause of a job that starts or moves there",
            default=0.0,
            low=0,
        ),
        _number("revocations_per_gpu_hour", "expected revocations", default=0.0, low=0),
        _number("memory_gb", "memory of one GPU", above=0),
        _number(
            "lifetime_s",
            "spot GPUs are taken back after so long at the latest; default no limit",
            above=0,
        ),
        _number(
            "availability",
            "share of time in which a job can have spot GPUs of the pool; default 0.4, other"
            " pools 1",
            default=RULE,
            above=0,
            high=1,
        ),
        _number(
            "min_billing_s",
            "GPUs that a job gets are billed for so long at least",
            default=0.0,
            low=0,
        ),
        Column(
            "sharing",
            ColumnKind.CHOICE,
            "who may run two by two on the same GPUs: nobody, jobs of one tenant, any, or a"
            " best-effort job as the second one",
            default="none",
            choices=("none", "tenant", "any", "best_effort"),
        ),
        _number(
            "isolation",
            "most times that a best-effort job on its GPUs makes a guaranteed job slower; default"
            " as in sharing.csv",
            low=1,
        ),
        _number(
            "straggler_cv",
            "standard deviation of the step times of single workers, divided by their mean",
            default=0.0,
            low=0,
            high=1,
        ),
        _text(
            "hazard_by_age",
            'revocations per GPU-hour by age of spot GPUs, "0:0.08|1:0.02": from hour 0 on 0.08,'
            " from 1 on 0.02; in place of revocations_per_gpu_hour",
        ),
        _number(
            "link_gb_s",
            "GB/s at which a worker exchanges volume_gb of rates.csv; default: it takes no time",
            above=0,
        ),
    ),
    key=("pool",),
    required=True,
)

RATES = TableSchema(
    "rates.csv",
    "measured speed",
    (
        _text("model", "as in jobs.csv", required=True),
        _text("gpu_type", "as in pools.csv", required=True),
        _gpus("gpus", "size at which it was measured", required=True),
        _number("work_per_s", "speed in the model's work unit", required=True, low=0),
        Column("batch_size", ColumnKind.INTEGER, "global batch", low=1),
        Column("accumulation", ColumnKind.INTEGER, "gradient accumulation steps", low=1),
        _number(
            "memory_gb",
            "memory per GPU; the row counts where a GPU of the pool has as much",
            above=0,
        ),
        Column(
            "spread",
            ColumnKind.INTEGER,
            "number of nodes; where pools have nodes and the size needs fewer, the row is an option"
            " of its own for jobs that are not packed",
            low=1,
        ),
        _text("variant", "free label: compressed, async ..."),
        _number("efficiency", "useful share of the work", default=1.0, above=0, high=1),
        _number(
            "compute_s",
            "seconds that a step computes; work_per_s is then the speed without codec and exchange",
            above=0,
        ),
        _number("codec_s", "seconds of a step to compress and decompress", default=0.0, low=0),
        _number(
            "volume_gb",
            "what a worker exchanges in a step before compression, over link_gb_s of the pool",
            default=0.0,
            low=0,
        ),
        _number("ratio", "volume before compression divided by that after it", default=1.0, low=1),
        Column(
            "observed",
            ColumnKind.BOOLEAN,
            "true: a controller saw it while jobs ran; a model that has no other row still "
            "runs at an assumed speed where it has none",
            default=False,
        ),
    ),
)

MODELS = TableSchema(
    "models.csv",
    "fitted speed models; a measured row wins at its size",
    (
        _text("model", "as in jobs.csv", required=True),
        _text("gpu_type", "as in pools.csv", required=True),
        Column(
            "kind",
            ColumnKind.CHOICE,
            "form of the speed curve",
            required=True,
            choices=("amdahl", "power", "overhead", "capped", "iteration", "goodput"),
        ),
        Column(
            "parameters",
            ColumnKind.JSON,
            "parameters of that form, a JSON object",
            required=True,
        ),
    ),
    key=("model", "gpu_type"),
)

PRICES = TableSchema(
    "prices.csv",
    "what changes over time; empty cell = unchanged. Rows after now_s are announced: "
    "the policy `horizon` plans with them",
    (
        _number("at_s", "from this time on", required=True),
        _text("pool", "as in pools.csv", required=True),
        _number("price_per_gpu_hour", "US dollars", low=0),
        _gpus("gpus", "GPUs usable", low=0),
    ),
    key=("at_s", "pool"),
)

TENANTS = TableSchema(
    "tenants.csv",
    "who shares the cluster",
    (
        _text("tenant", "unique name", required=True),
        _number("weight", "share in fairness objectives", default=1.0, above=0),
        _gpus("max_gpus", "most GPUs at once", low=0),
        _gpus("guaranteed_gpus", "GPUs it gets whenever its jobs can hold them", low=0, default=0),
        _number("budget_per_hour", "US dollars", low=0),
        _gpus("max_spot_gpus", "most GPUs at once in the spot pools of any one region", low=0),
        _number("max_spot_share", "the same limit as a share of guaranteed_gpus", low=0, high=1),
        _number(
            "dollar_price", "added to dollar_price of config.toml for its jobs", default=0.0, low=0
        ),
        _number(
            "average_per_hour",
            "US dollars that its jobs may cost on average, in windows of window_s of [longrun]",
            above=0,
        ),
        _number(
            "amount",
            "US dollars that its jobs may cost until until_s; instead of average_per_hour",
            above=0,
        ),
        _number("until_s", "date of amount"),
        _text(
            "parent",
            "tenant above it: what its jobs hold and cost counts for max_gpus, guaranteed_gpus and"
            " budget_per_hour of that one, too",
        ),
    ),
    key=("tenant",),
)

QUOTAS = TableSchema(
    "quotas.csv",
    "limits and guarantees of tenants by GPU type or pool, and what they lend",
    (
        _text("tenant", "as in tenants.csv", required=True),
        _text("gpu_type", "as in pools.csv; empty: all types"),
        _text("pool", "as in pools.csv; empty: all pools. Not both of gpu_type and pool"),
        _gpus("guaranteed_gpus", "GPUs it gets whenever its jobs can hold them", low=0, default=0),
        _gpus("max_gpus", "most GPUs at once", low=0),
        _gpus(
            "lend_gpus",
            "GPUs of guaranteed_gpus that others may hold while its own jobs can not; default all",
            low=0,
        ),
    ),
    key=("tenant", "gpu_type", "pool"),
)

NODES = TableSchema(
    "nodes.csv",
    "machines of the pools",
    (
        _text("node", "unique name", required=True),
        _text("pool", "as in pools.csv", required=True),
        _gpus("gpus", "GPUs of this node", low=0, required=True),
        Column(
            "state",
            ColumnKind.CHOICE,
            "only `up` nodes count",
            default="up",
            choices=("up", "drain", "down"),
        ),
        _text("rack", "where it stands; further columns are levels of [topology] in config.toml"),
        _number("cpus", "CPUs of this node; default no limit", low=0),
        _number("host_memory_gb", "memory of this node; default no limit", low=0),
    ),
    key=("node",),
)

PLACEMENTS = TableSchema(
    "placements.csv",
    "where running jobs sit",
    (
        _text("job_id", "as in jobs.csv", required=True),
        _text("node", "as in nodes.csv", required=True),
        _gpus("gpus", "GPUs of that node", required=True),
        _gpus("gpu", "of a job with gpu_fraction: number of the GPU in its node, from 0", low=0),
    ),
    key=("job_id", "node"),
)

RECEIVED = TableSchema(
    "received.csv",
    "how long jobs have held GPUs of a type",
    (
        _text("job_id", "as in jobs.csv", required=True),
        _text("gpu_type", "as in pools.csv or rates.csv", required=True),
        _number("seconds", "time so far", required=True, low=0),
    ),
    key=("job_id", "gpu_type"),
)

SHARING = TableSchema(
    "sharing.csv",
    "slowdown of two jobs on the same GPUs",
    (
        _text("model_a", "as in jobs.csv", required=True),
        _text("model_b", "as in jobs.csv", required=True),
        _text("gpu_type", "as in pools.csv", required=True),
        _gpus("gpus", "shared GPUs", required=True),
        _number("slowdown_a", "of model_a", required=True, low=1),
        _number("slowdown_b", "of model_b", required=True, low=1),
    ),
)

INTERACTIVE = TableSchema(
    "interactive.csv",
    "GPUs kept for interactive jobs, as a number or by the sessions to come",
    (
        _text("pool", "as in pools.csv", required=True),
        _gpus(
            "headroom_gpus",
            "GPUs that jobs which are not interactive leave; or sessions_per_hour and session_s;"
            " with neither a queue goes by the sessions it has seen",
            low=0,
        ),
        _number("sessions_per_hour", "sessions that begin per hour, at random times", low=0),
        _number("session_s", "mean length of a session", above=0),
        _gpus("session_gpus", "GPUs of a session", default=1),
        _number(
            "late_share",
            "share of the sessions that may have to wait for longer than the next round",
            default=0.05,
            low=1e-9,
            high=0.999,
        ),
        _number(
            "shrinkable_share",
            "share of the kept GPUs that shrinkable jobs may hold",
            default=0.0,
            low=0,
            high=1,
        ),
    ),
    key=("pool",),
)

PAUSES = TableSchema(
    "pauses.csv",
    "what a running job loses when its size changes, in place of restart_s",
    (
        _text("model", "as in jobs.csv", required=True),
        _gpus("from_gpus", "GPUs it held", required=True),
        _gpus("to_gpus", "GPUs it gets", required=True),
        _number(
            "pause_s",
            "seconds until it works again; startup_s of the pool is added",
            required=True,
            low=0,
        ),
        _text(
            "gpu_type",
            "of the GPUs it gets, as in pools.csv; empty: any that has no row of its own",
        ),
    ),
    key=("model", "gpu_type", "from_gpus", "to_gpus"),
)

FINISHED = TableSchema(
    "finished.csv",
    "jobs that are done, from which the sizes of others are learned where sizes is unknown",
    (
        _text("model", "as in jobs.csv", required=True),
        _number("total_work", "work of the whole job, in the model's unit", required=True, above=0),
    ),
)

TABLES: Mapping[str, TableSchema] = {
    t.file: t
    for t in (
        JOBS,
        POOLS,
        RATES,
        MODELS,
        PRICES,
        TENANTS,
        QUOTAS,
        NODES,
        PLACEMENTS,
        RECEIVED,
        SHARING,
        PAUSES,
        INTERACTIVE,
        FINISHED,
    )
}

INTERVAL_S = 300.0
# defaults of workloads and queues, which go on for many rounds: measured in docs/results.md
OVER_TIME: Mapping[str, Any] = {"objective": "flow", "spread_pauses": True}
SIZES = ("known", "predicted", "unknown")  # how remaining work is known: performance/sizes.py
SPEEDS = ("known", "noisy", "learned")  # in simulations: simulator/speed_beliefs.py

CONFIG: tuple[Column, ...] = (
    _number("now_s", "time of the snapshot; default: latest submitted_s", default=RULE),
    _number("interval_s", "length of a round", default=INTERVAL_S, above=0),
    _number("budget_per_hour", "US dollars over all running options", low=0),
    _number("restart_s", "pause of a running job that changes", default=30.0, low=0),
    Column(
        "max_changes",
        ColumnKind.INTEGER,
        "most running jobs whose allocation changes this round",
        low=0,
    ),
    Column(
        "max_primaries",
        ColumnKind.INTEGER,
        "most jobs on whose GPUs, and idle ones, one job may run as a second one; 1: on those of a"
        " job of as many GPUs",
        default=1,
        low=1,
        high=4,
    ),
    _number(
        "ageing_s",
        "waiting so long adds a job's weight once more to its weight; default: no ageing",
        above=0,
    ),
    Column(
        "objective",
        ColumnKind.OBJECTIVE,
        'value of a plan: a name, a sum "a=1,b=0.2", or ranks "a > b"',
        default="progress",
        choices=BUILT_IN,
    ),
    Column(
        "spread_pauses",
        ColumnKind.BOOLEAN,
        "true: values count the pause of a change spread over the time for which the job will "
        "probably keep what it gets; false: the whole pause in this round",
        default=False,
    ),
    Column(
        "sizes",
        ColumnKind.CHOICE,
        "what remaining_work and total_work say: sizes that are known, predicted, or unknown "
        "(then the work done and other jobs of the model count); loss_work of a job counts"
        " instead",
        default="known",
        choices=SIZES,
    ),
    _number(
        "size_error",
        "predicted sizes: standard deviation of ln(true size / total_work)",
        default=0.5,
        above=0,
    ),
    _number(
        "dollar_price",
        "value of one dollar in units of the objective: dollars that a plan spends are deducted",
        default=0.0,
        low=0,
    ),
    Column(
        "unknown_tenants",
        ColumnKind.CHOICE,
        "a job of a tenant that tenants.csv does not name: warn, no limit of a "
        "tenant holds for it; refuse, it is a fault",
        default="warn",
        choices=("warn", "refuse"),
    ),
    Column(
        "unknown_models",
        ColumnKind.CHOICE,
        "a job of a model without any rate: assume, it runs at requested_gpus at an assumed speed;"
        " refuse, it is a fault; default: assume, but refuse what looks like a slip of a known"
        " model",
        default=RULE,
        choices=("assume", "refuse"),
    ),
)
LONGRUN: tuple[Column, ...] = (
    _number(
        "average_per_hour",
        "US dollars that GPUs which are not reserved may cost on average",
        above=0,
    ),
    _number(
        "amount",
        "US dollars that they may cost until until_s; instead of average_per_hour",
        above=0,
    ),
    _number("until_s", "date of amount, on the clock of now_s"),
    _number(
        "window_s",
        "an average is kept in each window of so many seconds; default 14 days",
        default=1_209_600.0,
        above=0,
    ),
    Column(
        "account",
        ColumnKind.JSON,
        "what was spent so far: written by controllers and simulations into "
        "the snapshots of their rounds",
    ),
    Column("tenants", ColumnKind.JSON, "the same of each tenant with such a budget"),
)
# largest number of intervals of a look ahead: the recursion over plans is measured up to it
MOST_ROUNDS = 48
HORIZON: tuple[Column, ...] = (
    Column(
        "rounds",
        ColumnKind.INTEGER,
        "intervals that the policy `horizon` plans at once; 1: a single round",
        default=6,
        low=1,
        high=MOST_ROUNDS,
    ),
)
PROFILING: tuple[Column, ...] = (
    _number(
        "share",
        "most of the cluster's GPUs that may get more value because running there teaches how fast"
        " jobs are; 0: none",
        default=0.0,
        low=0,
        high=1,
    ),
    _number("rounds", "rounds for which knowing a speed has value", default=6.0, above=0),
    _number(
        "gpu_hours",
        "GPU-hours that the trials of one model may take: a controller lets jobs run the"
        " configurations that `configure --profile` asks for; default: none",
        low=0,
    ),
    _number(
        "trial_s", "seconds of one trial, at least until a speed was seen", default=120.0, above=0
    ),
)
RENTAL: tuple[Column, ...] = (
    _number(
        "average_per_hour",
        "US dollars that GPUs which are not reserved may cost in the long run: dollar_price and"
        " wider_share are planned from the jobs that came, and those given here do not count",
        above=0,
    ),
    _number("hours", "the jobs submitted in so many hours are planned for", default=168.0, above=0),
    _number("every_s", "seconds from one such plan to the next", default=300.0, above=0),
    _number(
        "repay_hours",
        "what was spent too much or too little is made good over about so many hours",
        default=336.0,
        above=0,
    ),
    Column(
        "account",
        ColumnKind.JSON,
        "what was spent so far: written by controllers and simulations into "
        "the snapshots of their rounds",
    ),
    _number(
        "wider_share",
        "share of jobs that take the wider of two widths that are equally good at dollar_price",
        default=0.0,
        low=0,
        high=1,
    ),
)
LEVELS = ("rack",)  # levels of a topology that are not named
TOPOLOGY: tuple[Column, ...] = (
    Column(
        "levels",
        ColumnKind.TEXTS,
        'columns of nodes.csv that say where a node stands, the nearest first; default ["rack"]',
        default=RULE,
    ),
)
# tables and their keys; other keys are a warning
CONFIG_TABLES: Mapping[str, tuple[Column, ...]] = {
    "solver": (),
    "horizon": HORIZON,
    "sharing": (),
    "longrun": LONGRUN,
    "profiling": PROFILING,
    "rental": RENTAL,
    "topology": TOPOLOGY,
}

_RANGE = (
    _gpus("min_gpus", "smallest size it may be offered at", default=1),
    _gpus("max_gpus", "largest size it may be offered at", default=1024),
    _number("error", "relative standard error of the speed, found by cross-validation", low=0),
)
_MEMORY = (
    _number("memory_gb", "GB of each GPU that do not depend on the batch", default=0.0, low=0),
    _number("memory_per_sample_gb", "GB for each sample on the GPU at once", default=0.0, low=0),
)
_RATE_1 = _number("rate_1", "work per second on one GPU", required=True, low=0)
CURVE_PARAMETERS: Mapping[str, tuple[Column, ...]] = {  # models.csv `parameters`, by `kind`
    "amdahl": (
        _RATE_1,
        _number(
            "parallel", "share p of the work that runs in parallel", required=True, low=0, high=1
        ),
        *_RANGE,
    ),
    "power": (
        _RATE_1,
        _number("exponent", "a in rate_1 k^a", required=True, low=0, high=4),
        *_RANGE,
    ),
    "overhead": (
        _RATE_1,
        _number("c", "overhead of each further GPU", required=True, low=0),
        *_RANGE,
    ),
    "capped": (
        _RATE_1,
        _number(
            "cap",
            "speed at which something else than the GPUs is the bottleneck",
            required=True,
            above=0,
        ),
        *_RANGE,
    ),
    "iteration": (
        _number("compute", "alpha: GPU-seconds of one unit of the batch", required=True, above=0),
        _number("sync", "beta: seconds of synchronisation per GPU", required=True, low=0),
        _number("constant", "seconds of a step that depend on nothing", default=0.0, low=0),
        _number(
            "noise",
            "epochs are 1 + noise/sqrt(batch) times those of an infinite batch",
            default=0.0,
        ),
        _number(
            "noise_scale",
            "gradient noise scale in samples; in place of noise where it is known",
            low=0,
        ),
        _batch("min_batch", "smallest global batch; default: one batch, of size 1"),
        _batch("max_batch", "largest global batch; default min_batch"),
        _batch("max_local", "largest batch that fits one GPU; default no limit"),
        *_MEMORY,
        *_RANGE,
    ),
    "goodput": (
        _number("alpha_c", "seconds of a pass that depend on nothing", required=True, low=0),
        _number("beta_c", "seconds of a pass per sample on the GPU", required=True, low=0),
        _number("alpha_r", "seconds of synchronisation inside a node", required=True, low=0),
        _number("beta_r", "the same per GPU beyond two", required=True, low=0),
        _number("alpha_n", "seconds of synchronisation between nodes", required=True, low=0),
        _number("beta_n", "the same per GPU beyond two", required=True, low=0),
        _number(
            "gamma",
            "overlap of computing and synchronising, 1 = none",
            required=True,
            low=1,
            high=10,
        ),
        _number(
            "noise_scale",
            "gradient noise scale in samples; default: every sample counts alike",
            low=0,
        ),
        _batch(
            "batch_0",
            "smallest global batch; work is counted in samples at this batch",
            required=True,
        ),
        _batch("max_batch", "largest global batch; default batch_0"),
        _batch("min_local", "smallest batch of one GPU", default=1),
        _batch("max_local", "largest batch that fits one GPU", required=True),
        _gpus("gpus_per_node", "a job of k GPUs sits on k / gpus_per_node nodes", default=8),
        *_MEMORY,
        *_RANGE,
    ),
}
