"""The schema of all files and columns of a snapshot: names, types, ranges, defaults, meaning.

Reading, validating, writing, `allocator schema` and the documentation are all derived from
`TABLES`. The rules between columns are those of docs/reference/rules.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
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
    means that an empty cell has no value; arrays then have the number `empty` there, if given.
    `names` says what the names in the cells are the names of: a field of `Names`.
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
    names: str = ""
    empty: float | None = None


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


def _kind(kind: ColumnKind, **usual: Any) -> Callable[..., Column]:
    """Return the function that makes columns of a kind: of name, meaning, and other fields."""
    return lambda name, doc, **more: Column(name, kind, doc, **usual | more)


text = _kind(ColumnKind.TEXT)
name = _kind(ColumnKind.TEXT, required=True)
texts = _kind(ColumnKind.TEXTS)
number = _kind(ColumnKind.NUMBER)
amount = _kind(ColumnKind.NUMBER, low=0, default=0.0)
needed = _kind(ColumnKind.NUMBER, low=0, required=True)
positive = _kind(ColumnKind.NUMBER, above=0)
share = _kind(ColumnKind.NUMBER, low=0, high=1)
integer = _kind(ColumnKind.INTEGER)
gpus = _kind(ColumnKind.INTEGER, low=1, high=MOST_GPUS)
batch = _kind(ColumnKind.INTEGER, low=1, high=MOST_INTEGER)
flag = _kind(ColumnKind.BOOLEAN, default=False)
choice = _kind(ColumnKind.CHOICE)
table = _kind(ColumnKind.JSON)
limit = partial(gpus, low=0, empty=math.inf)
MODEL = name("model", "as in jobs.csv", names="models")
GPU_TYPE = name("gpu_type", "as in pools.csv", names="gpu_types")
POOL = name("pool", "as in pools.csv", names="pools")

JOBS = TableSchema(
    "jobs.csv",
    "every job that is queued, running or paused",
    (
        name("job_id", "unique name"),
        name("model", "key into rates.csv and models.csv", names="models"),
        number("submitted_s", "time of submission, on the clock of now_s", required=True),
        positive("remaining_work", "work left, in the model's unit", required=True),
        positive("total_work", "whole work of the job; default remaining_work", default=RULE),
        text("tenant", "who pays and whose quota counts", default="default", names="tenants"),
        choice(
            "state",
            "what the job does now",
            default="queued",
            choices=("queued", "running", "paused", "held"),
        ),
        text("pool", "pool it holds GPUs of now; set exactly when running", names="pools"),
        gpus("gpus", "GPUs it holds now; set exactly when running"),
        gpus("min_gpus", "smallest size", default=1),
        gpus("max_gpus", "largest size", required=True),
        gpus("requested_gpus", "size its user asked for; default min_gpus", default=RULE),
        Column(
            "sizes",
            ColumnKind.INTEGERS,
            "allowed sizes; default: powers of two up to gpus_per_node, then whole nodes",
            default=RULE,
            low=1,
            high=MOST_GPUS,
        ),
        texts("gpu_types", "allowed GPU types; default any", default=RULE),
        positive("weight", "scales its value in the objective", default=1.0),
        number("deadline_s", "absolute time by which it should be done"),
        flag(
            "preemptible",
            "false: while running it may not be paused, moved or resized",
            default=True,
        ),
        number(
            "restart_s",
            "pause when its allocation changes while running; default restart_s of config.toml",
            default=RULE,
            low=0,
        ),
        integer(
            "resizes_left",
            "changes it can still stand; 0: only keep or pause",
            low=0,
        ),
        positive("memory_gb", "memory per GPU, for sharing"),
        amount("checkpoint_s", "cost of a checkpoint"),
        positive("checkpoint_every_s", "interval of checkpoints"),
        texts("after", "starts when these jobs are done (no longer in the snapshot)"),
        limit(
            "max_spot_gpus", "most GPUs it may hold in spot pools; 0: never there; default no limit"
        ),
        flag(
            "interactive",
            "true: a session of somebody who waits for it; GPUs are kept for these in the "
            "pools of interactive.csv",
        ),
        flag(
            "shrinkable",
            "true: it gives back GPUs above min_gpus at short notice and may therefore hold "
            "shrinkable_share of those kept for interactive jobs",
        ),
        flag(
            "best_effort",
            "true: it has no guarantee: no rule of stability protects it, it may run next to"
            ' guaranteed jobs where sharing is "best_effort", and isolation protects these from it',
        ),
        positive(
            "every_s",
            "periodic: it comes again every so many seconds, as a job of its own (queue and"
            " workloads)",
        ),
        integer(
            "times",
            "how many times a periodic job comes in all; default in a queue: until cancelled",
            low=1,
            high=100_000,
        ),
        flag(
            "synchronous",
            "true: a revoked GPU stops the job, which falls back to its last checkpoint; "
            "false: only the share of the lost worker is lost until it is replaced",
            default=True,
        ),
        texts(
            "modes",
            "ways to keep its workers in step, of which each option has the best: bulk, backup:K"
            " (K spare workers), replicated:R (R replicas of each), asynchronous:E (share E of its"
            " work counts); default bulk, or asynchronous where synchronous is false",
        ),
        amount("attained_gpu_s", "GPU-seconds it has held so far"),
        integer(
            "restarts",
            "starts after the first and changes of its allocation so far",
            default=0,
            low=0,
        ),
        gpus(
            "largest_gpus",
            "most GPUs it has held so far; default what it holds now",
            low=0,
            default=RULE,
        ),
        text(
            "shared_with",
            "running job on whose GPUs it runs as a second one; same pool and gpus. Several jobs,"
            ' "a|b", where max_primaries allows it: all of their GPUs, and others of the pool',
        ),
        amount("cpus_per_gpu", "CPUs of the node that each of its GPUs needs"),
        amount("host_memory_gb_per_gpu", "memory of the node that each of its GPUs needs"),
        positive(
            "gpu_fraction",
            "share of one GPU, below 1, for a job of max_gpus 1; several such jobs fill one GPU of"
            " a node of nodes.csv; default: whole GPUs",
            high=1,
        ),
        text(
            "placement",
            "packed: on as few nodes as its size needs; spread: on as many as possible; same_rack:"
            " all nodes in one rack; prefer_rack: if possible; or another level of [topology]",
            default="packed",
        ),
        positive(
            "target_loss",
            "the job is done when its training loss is as low; what is left is then expected from"
            " the losses that it reports, and total_work is the most that it does",
        ),
        positive(
            "loss_work",
            "whole work of the job until target_loss, as the losses so far say: median; a"
            " controller fills it in",
        ),
        number(
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
        name("pool", "unique name"),
        name("gpu_type", "key into rates.csv", names="gpu_types"),
        gpus("gpus", "GPUs usable now", low=0, required=True),
        gpus("gpus_per_node", "GPUs of one node", default=8),
        choice(
            "market",
            "how it is bought",
            default="reserved",
            choices=("reserved", "on_demand", "spot"),
        ),
        amount("price_per_gpu_hour", "US dollars"),
        amount(
            "price_per_gb_hour",
            "US dollars for a GB of GPU memory that a job needs, besides the price of its GPUs",
        ),
        text("region", "where it stands"),
        amount("startup_s", "added to the pause of a job that starts or moves there"),
        amount("revocations_per_gpu_hour", "expected revocations"),
        positive("memory_gb", "memory of one GPU"),
        positive(
            "lifetime_s",
            "spot GPUs are taken back after so long at the latest; default no limit",
            empty=math.inf,
        ),
        positive(
            "availability",
            "share of time in which a job can have spot GPUs of the pool; default 0.4, other"
            " pools 1",
            default=RULE,
            high=1,
        ),
        amount("min_billing_s", "GPUs that a job gets are billed for so long at least"),
        choice(
            "sharing",
            "who may run two by two on the same GPUs: nobody, jobs of one tenant, any, or a"
            " best-effort job as the second one",
            default="none",
            choices=("none", "tenant", "any", "best_effort"),
        ),
        number(
            "isolation",
            "most times that a best-effort job on its GPUs makes a guaranteed job slower; default"
            " as in sharing.csv",
            low=1,
            empty=math.inf,
        ),
        amount(
            "straggler_cv",
            "standard deviation of the step times of single workers, divided by their mean",
            high=1,
        ),
        text(
            "hazard_by_age",
            'revocations per GPU-hour by age of spot GPUs, "0:0.08|1:0.02": from hour 0 on 0.08,'
            " from 1 on 0.02; in place of revocations_per_gpu_hour",
        ),
        positive(
            "link_gb_s",
            "GB/s at which a worker exchanges volume_gb of rates.csv; default: it takes no time",
            empty=math.inf,
        ),
    ),
    key=("pool",),
    required=True,
)

RATES = TableSchema(
    "rates.csv",
    "measured speed",
    (
        MODEL,
        GPU_TYPE,
        gpus("gpus", "size at which it was measured", required=True),
        needed("work_per_s", "speed in the model's work unit"),
        integer("batch_size", "global batch", low=1),
        integer("accumulation", "gradient accumulation steps", low=1),
        positive("memory_gb", "memory per GPU; the row counts where a GPU of the pool has as much"),
        integer(
            "spread",
            "number of nodes; where pools have nodes and the size needs fewer, the row is an option"
            " of its own for jobs that are not packed",
            low=1,
        ),
        text("variant", "free label: compressed, async ..."),
        positive("efficiency", "useful share of the work", default=1.0, high=1),
        positive(
            "compute_s",
            "seconds that a step computes; work_per_s is then the speed without codec and exchange",
        ),
        amount("codec_s", "seconds of a step to compress and decompress"),
        amount(
            "volume_gb",
            "what a worker exchanges in a step before compression, over link_gb_s of the pool",
        ),
        number("ratio", "volume before compression divided by that after it", default=1.0, low=1),
        flag(
            "observed",
            "true: a controller saw it while jobs ran; a model that has no other row still "
            "runs at an assumed speed where it has none",
        ),
    ),
)

MODELS = TableSchema(
    "models.csv",
    "fitted speed models; a measured row wins at its size",
    (
        MODEL,
        GPU_TYPE,
        choice(
            "kind",
            "form of the speed curve",
            required=True,
            choices=("amdahl", "power", "overhead", "capped", "iteration", "goodput"),
        ),
        table(
            "parameters",
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
        number("at_s", "from this time on", required=True),
        POOL,
        number("price_per_gpu_hour", "US dollars", low=0),
        gpus("gpus", "GPUs usable", low=0),
    ),
    key=("at_s", "pool"),
)

TENANTS = TableSchema(
    "tenants.csv",
    "who shares the cluster",
    (
        name("tenant", "unique name"),
        positive("weight", "share in fairness objectives", default=1.0),
        limit("max_gpus", "most GPUs at once"),
        gpus("guaranteed_gpus", "GPUs it gets whenever its jobs can hold them", low=0, default=0),
        number("budget_per_hour", "US dollars", low=0, empty=math.inf),
        limit("max_spot_gpus", "most GPUs at once in the spot pools of any one region"),
        share("max_spot_share", "the same limit as a share of guaranteed_gpus", empty=math.inf),
        amount("dollar_price", "added to dollar_price of config.toml for its jobs"),
        positive(
            "average_per_hour",
            "US dollars that its jobs may cost on average, in windows of window_s of [longrun]",
        ),
        positive(
            "amount", "US dollars that its jobs may cost until until_s; instead of average_per_hour"
        ),
        number("until_s", "date of amount", empty=math.inf),
        text(
            "parent",
            "tenant above it: what its jobs hold and cost counts for max_gpus, guaranteed_gpus and"
            " budget_per_hour of that one, too",
            names="tenants",
        ),
    ),
    key=("tenant",),
)

QUOTAS = TableSchema(
    "quotas.csv",
    "limits and guarantees of tenants by GPU type or pool, and what they lend",
    (
        name("tenant", "as in tenants.csv", names="tenants"),
        text("gpu_type", "as in pools.csv; empty: all types", names="gpu_types"),
        text(
            "pool",
            "as in pools.csv; empty: all pools. Not both of gpu_type and pool",
            names="pools",
        ),
        gpus("guaranteed_gpus", "GPUs it gets whenever its jobs can hold them", low=0, default=0),
        limit("max_gpus", "most GPUs at once"),
        limit(
            "lend_gpus",
            "GPUs of guaranteed_gpus that others may hold while its own jobs can not; default all",
        ),
    ),
    key=("tenant", "gpu_type", "pool"),
)

NODES = TableSchema(
    "nodes.csv",
    "machines of the pools",
    (
        name("node", "unique name"),
        POOL,
        gpus("gpus", "GPUs of this node", low=0, required=True),
        choice(
            "state",
            "only `up` nodes count",
            default="up",
            choices=("up", "drain", "down"),
        ),
        text("rack", "where it stands; further columns are levels of [topology] in config.toml"),
        number("cpus", "CPUs of this node; default no limit", low=0, empty=math.inf),
        number("host_memory_gb", "memory of this node; default no limit", low=0, empty=math.inf),
    ),
    key=("node",),
)

PLACEMENTS = TableSchema(
    "placements.csv",
    "where running jobs sit",
    (
        name("job_id", "as in jobs.csv", names="jobs"),
        name("node", "as in nodes.csv", names="nodes"),
        gpus("gpus", "GPUs of that node", required=True),
        gpus("gpu", "of a job with gpu_fraction: number of the GPU in its node, from 0", low=0),
    ),
    key=("job_id", "node"),
)

RECEIVED = TableSchema(
    "received.csv",
    "how long jobs have held GPUs of a type",
    (
        name("job_id", "as in jobs.csv", names="jobs"),
        name("gpu_type", "as in pools.csv or rates.csv", names="gpu_types"),
        needed("seconds", "time so far"),
    ),
    key=("job_id", "gpu_type"),
)

SHARING = TableSchema(
    "sharing.csv",
    "slowdown of two jobs on the same GPUs",
    (
        name("model_a", "as in jobs.csv", names="models"),
        name("model_b", "as in jobs.csv", names="models"),
        GPU_TYPE,
        gpus("gpus", "shared GPUs", required=True),
        number("slowdown_a", "of model_a", required=True, low=1),
        number("slowdown_b", "of model_b", required=True, low=1),
    ),
)

INTERACTIVE = TableSchema(
    "interactive.csv",
    "GPUs kept for interactive jobs, as a number or by the sessions to come",
    (
        POOL,
        gpus(
            "headroom_gpus",
            "GPUs that jobs which are not interactive leave; or sessions_per_hour and session_s;"
            " with neither a queue goes by the sessions it has seen",
            low=0,
        ),
        number("sessions_per_hour", "sessions that begin per hour, at random times", low=0),
        positive("session_s", "mean length of a session"),
        gpus("session_gpus", "GPUs of a session", default=1),
        number(
            "late_share",
            "share of the sessions that may have to wait for longer than the next round",
            default=0.05,
            low=1e-9,
            high=0.999,
        ),
        amount("shrinkable_share", "share of the kept GPUs that shrinkable jobs may hold", high=1),
    ),
    key=("pool",),
)

PAUSES = TableSchema(
    "pauses.csv",
    "what a running job loses when its size changes, in place of restart_s",
    (
        MODEL,
        gpus("from_gpus", "GPUs it held", required=True),
        gpus("to_gpus", "GPUs it gets", required=True),
        needed("pause_s", "seconds until it works again; startup_s of the pool is added"),
        text(
            "gpu_type",
            "of the GPUs it gets, as in pools.csv; empty: any that has no row of its own",
            names="gpu_types",
        ),
    ),
    key=("model", "gpu_type", "from_gpus", "to_gpus"),
)

FINISHED = TableSchema(
    "finished.csv",
    "jobs that are done, from which the sizes of others are learned where sizes is unknown",
    (
        MODEL,
        positive("total_work", "work of the whole job, in the model's unit", required=True),
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
    number("now_s", "time of the snapshot; default: latest submitted_s", default=RULE),
    positive("interval_s", "length of a round", default=INTERVAL_S),
    number("budget_per_hour", "US dollars over all running options", low=0, empty=math.inf),
    number("restart_s", "pause of a running job that changes", default=30.0, low=0),
    integer(
        "max_changes",
        "most running jobs whose allocation changes this round",
        low=0,
        empty=-1,
    ),
    integer(
        "max_primaries",
        "most jobs on whose GPUs, and idle ones, one job may run as a second one; 1: on those of a"
        " job of as many GPUs",
        default=1,
        low=1,
        high=4,
    ),
    positive(
        "ageing_s",
        "waiting so long adds a job's weight once more to its weight; default: no ageing",
        empty=math.inf,
    ),
    number(
        "reserve_after_s",
        "a large job that smaller, later ones would pass over gets a reservation once it has waited"
        " so long; a very large number: never",
        default=0.0,
        low=0,
    ),
    Column(
        "objective",
        ColumnKind.OBJECTIVE,
        'value of a plan: a name, a sum "a=1,b=0.2", or ranks "a > b"',
        default="progress",
        choices=BUILT_IN,
    ),
    flag(
        "spread_pauses",
        "true: values count the pause of a change spread over the time for which the job will "
        "probably keep what it gets; false: the whole pause in this round",
    ),
    choice(
        "sizes",
        "what remaining_work and total_work say: sizes that are known, predicted, or unknown "
        "(then the work done and other jobs of the model count); loss_work of a job counts"
        " instead",
        default="known",
        choices=SIZES,
    ),
    positive(
        "size_error",
        "predicted sizes: standard deviation of ln(true size / total_work)",
        default=0.5,
    ),
    amount(
        "dollar_price",
        "value of one dollar in units of the objective: dollars that a plan spends are deducted",
    ),
    choice(
        "unknown_tenants",
        "a job of a tenant that tenants.csv does not name: warn, no limit of a "
        "tenant holds for it; refuse, it is a fault",
        default="warn",
        choices=("warn", "refuse"),
    ),
    choice(
        "unknown_models",
        "a job of a model without any rate: assume, it runs at requested_gpus at an assumed speed;"
        " refuse, it is a fault; default: assume, but refuse what looks like a slip of a known"
        " model",
        default=RULE,
        choices=("assume", "refuse"),
    ),
)
LONGRUN: tuple[Column, ...] = (
    positive("average_per_hour", "US dollars that GPUs which are not reserved may cost on average"),
    positive("amount", "US dollars that they may cost until until_s; instead of average_per_hour"),
    number("until_s", "date of amount, on the clock of now_s"),
    positive(
        "window_s",
        "an average is kept in each window of so many seconds; default 14 days",
        default=1_209_600.0,
    ),
    table(
        "account",
        "what was spent so far: written by controllers and simulations into "
        "the snapshots of their rounds",
    ),
    table("tenants", "the same of each tenant with such a budget"),
)
# largest number of intervals of a look ahead: the recursion over plans is measured up to it
MOST_ROUNDS = 48
HORIZON: tuple[Column, ...] = (
    integer(
        "rounds",
        "intervals that the policy `horizon` plans at once; 1: a single round",
        default=6,
        low=1,
        high=MOST_ROUNDS,
    ),
)
PROFILING: tuple[Column, ...] = (
    amount(
        "share",
        "most of the cluster's GPUs that may get more value because running there teaches how fast"
        " jobs are; 0: none",
        high=1,
    ),
    positive("rounds", "rounds for which knowing a speed has value", default=6.0),
    number(
        "gpu_hours",
        "GPU-hours that the trials of one model may take: a controller lets jobs run the"
        " configurations that `configure --profile` asks for; default: none",
        low=0,
    ),
    positive("trial_s", "seconds of one trial, at least until a speed was seen", default=120.0),
)
RENTAL: tuple[Column, ...] = (
    positive(
        "average_per_hour",
        "US dollars that GPUs which are not reserved may cost in the long run: dollar_price and"
        " wider_share are planned from the jobs that came, and those given here do not count",
    ),
    positive("hours", "the jobs submitted in so many hours are planned for", default=168.0),
    positive("every_s", "seconds from one such plan to the next", default=300.0),
    positive(
        "repay_hours",
        "what was spent too much or too little is made good over about so many hours",
        default=336.0,
    ),
    table(
        "account",
        "what was spent so far: written by controllers and simulations into "
        "the snapshots of their rounds",
    ),
    amount(
        "wider_share",
        "share of jobs that take the wider of two widths that are equally good at dollar_price",
        high=1,
    ),
)
LEVELS = ("rack",)  # levels of a topology that are not named
TOPOLOGY: tuple[Column, ...] = (
    texts(
        "levels",
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
    gpus("min_gpus", "smallest size it may be offered at", default=1),
    gpus("max_gpus", "largest size it may be offered at", default=1024),
    number("error", "relative standard error of the speed, found by cross-validation", low=0),
)
_MEMORY = (
    amount("memory_gb", "GB of each GPU that do not depend on the batch"),
    amount("memory_per_sample_gb", "GB for each sample on the GPU at once"),
)
_RATE_1 = needed("rate_1", "work per second on one GPU")
CURVE_PARAMETERS: Mapping[str, tuple[Column, ...]] = {  # models.csv `parameters`, by `kind`
    "amdahl": (
        _RATE_1,
        needed("parallel", "share p of the work that runs in parallel", high=1),
        *_RANGE,
    ),
    "power": (
        _RATE_1,
        needed("exponent", "a in rate_1 k^a", high=4),
        *_RANGE,
    ),
    "overhead": (
        _RATE_1,
        needed("c", "overhead of each further GPU"),
        *_RANGE,
    ),
    "capped": (
        _RATE_1,
        positive(
            "cap", "speed at which something else than the GPUs is the bottleneck", required=True
        ),
        *_RANGE,
    ),
    "iteration": (
        positive("compute", "alpha: GPU-seconds of one unit of the batch", required=True),
        needed("sync", "beta: seconds of synchronisation per GPU"),
        amount("constant", "seconds of a step that depend on nothing"),
        number(
            "noise",
            "epochs are 1 + noise/sqrt(batch) times those of an infinite batch",
            default=0.0,
        ),
        number(
            "noise_scale",
            "gradient noise scale in samples; in place of noise where it is known",
            low=0,
        ),
        batch("min_batch", "smallest global batch; default: one batch, of size 1"),
        batch("max_batch", "largest global batch; default min_batch"),
        batch("max_local", "largest batch that fits one GPU; default no limit"),
        *_MEMORY,
        *_RANGE,
    ),
    "goodput": (
        needed("alpha_c", "seconds of a pass that depend on nothing"),
        needed("beta_c", "seconds of a pass per sample on the GPU"),
        needed("alpha_r", "seconds of synchronisation inside a node"),
        needed("beta_r", "the same per GPU beyond two"),
        needed("alpha_n", "seconds of synchronisation between nodes"),
        needed("beta_n", "the same per GPU beyond two"),
        number(
            "gamma",
            "overlap of computing and synchronising, 1 = none",
            required=True,
            low=1,
            high=10,
        ),
        number(
            "noise_scale",
            "gradient noise scale in samples; default: every sample counts alike",
            low=0,
        ),
        batch(
            "batch_0",
            "smallest global batch; work is counted in samples at this batch",
            required=True,
        ),
        batch("max_batch", "largest global batch; default batch_0"),
        batch("min_local", "smallest batch of one GPU", default=1),
        batch("max_local", "largest batch that fits one GPU", required=True),
        gpus("gpus_per_node", "a job of k GPUs sits on k / gpus_per_node nodes", default=8),
        *_MEMORY,
        *_RANGE,
    ),
}
