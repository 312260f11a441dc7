"""Write docs/snapshot-format.md and docs/workload-format.md from the column tables.

    python scripts/generators/generate_format_docs.py

The pages therefore always agree with the code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from allocator.domain.schema.columns import CONFIG, CONFIG_TABLES, RULE, TABLES, Column, TableSchema
from allocator.domain.schema.workload_columns import UNDER_WAY, WORKLOAD_CONFIG, WORKLOAD_TABLES

HEAD = """# Snapshot format

A folder of CSV files with a header, UTF-8; unknown columns are a warning, an empty cell is the \
default. Written by
`scripts/generators/generate_format_docs.py` from `allocator/domain/schema/columns.py`; \
`allocator schema` prints \
the same as JSON Schema.
Units: seconds, US dollars, GPUs, and work in each model's own unit.

- **Sizes.** A job is offered its `sizes`, else powers of two up to gpus_per_node and then whole \
nodes; both only
  within [min_gpus, max_gpus], and only where a speed is known. What a running job holds is always \
offered.
  Above 1,024 nodes not every number of whole nodes is offered, but those of at most eight \
significant binary digits,
  which differ by less than 0.8 %, and those that the job names (min_gpus rounded up, max_gpus \
rounded down,
  requested_gpus) or where its model was measured; a warning says so. The plan is optimal among \
these.
- **Speed.** The rate of a row of rates.csv is work_per_s x efficiency; several
  rows of one model, type and size are alternatives, of which the fastest counts. A size k between \
two measured ones,
  k1 < k < k2 with rates r1 and r2, runs at min(r1 + (r2 - r1)(k - k1)/(k2 - k1), r1 k/k1): on the \
straight line
  between them, and never better per GPU than k1. Sizes below the smallest or beyond the largest \
measured one are not
  offered ([fitted curves](speed-models.md) say how far they reach).
- **Models without a rate.** A job whose model has no row in either file, both of which may be \
absent, has one size,
  requested_gpus, in every pool of its types that holds it, and keeps what it holds. It runs at an \
assumed speed of 1
  work/s, so that remaining_work is taken as seconds; a warning counts such jobs, and `detail` of \
their plan says so. A
  name that looks like a slip of a model with rates is a fault (`unknown_models`). Rows marked \
`observed` are what a
  controller has seen: at these sizes the job may run within its range, at its requested size \
elsewhere it does as much
  per GPU as at the nearest size seen. Any other row or curve ends this: then the rules of rates \
hold.
- **Pauses.** A running job that keeps what it holds has none. One that changes pauses for its \
restart_s plus the
  startup_s of the pool it goes to; one that is not running starts after startup_s.
- **Hard rules**, which every plan of every policy keeps: the GPUs of each pool; the sizes and \
types of each job; the
  sum of gpus x price_per_gpu_hour of all that run, at most budget_per_hour; max_gpus and \
budget_per_hour of each
  tenant, and its guarantee; jobs that are not preemptible, held, or out of resizes_left; \
max_changes (to be paused is
  a change, too).
- **Guarantees.** Let u be the most GPUs, not above guaranteed_gpus, that the tenant's own jobs \
could hold if it were
  alone in the cluster: it gets at least u.
- **Trees of tenants.** A tenant may have a parent. Let U(t, g) be the GPUs of g that the jobs of \
t and of all tenants
  below it hold, where g is all GPUs, one type or one pool. max_gpus says U(t, g) <= max(t, g), \
guaranteed_gpus
  U(t, g) >= u(t, g), where u counts these jobs; budget_per_hour is added up in the same way. All \
other columns of
  tenants.csv concern the own jobs of t. A row of quotas.csv is such a rule for one type or pool. \
What a tenant holds
  above its guarantee is borrowed; the owner's guarantee takes it back in the round in which its \
jobs can use it.
- **Lending.** The reserve r(t, g) = max(0, guaranteed_gpus - lend_gpus) is not lent: as many GPUs \
of g stay free as
  H(g), the sum of H(t, g) over tenants without a parent, where H(t, g) = max(r(t, g) - u(t, g), \
sum of H(c, g) over
  the children c of t, 0). They give way to guarantees and to jobs that may not be moved. See \
[quotas](quotas.md).
- **Prices.** Of prices.csv the latest row of each pool that is not after now_s counts. Where \
nodes.csv lists nodes of
  a pool, its GPUs are those of the nodes that are up.

- **Slips.** What is legal but looks like a mistake is a warning: columns and keys that are not \
known, also inside
  tables of config.toml; deadlines that no speed can keep; jobs that run where no rate is known; \
reserved GPUs that
  cost more than the budget. A tenant that tenants.csv does not name has no limits: it is a \
warning, and a fault with
  `unknown_tenants = "refuse"`. More than five faults that differ only in line and job are one \
line with their number;
  `allocator validate --format json` lists every one.

The smallest snapshot, one job that runs and one that waits for some of 8 GPUs:

    jobs.csv                                                             pools.csv
    job_id,model,submitted_s,remaining_work,max_gpus,state,pool,gpus     pool,gpu_type,gpus
    a,bert,0,90000,8,running,main,8                                      main,A100,8
    b,bert,60,1200,4,queued,,

    rates.csv
    model,gpu_type,gpus,work_per_s
    bert,A100,1,10
    bert,A100,8,60
"""


WORKLOAD_HEAD = f"""# Workload format

What `allocator simulate` runs: a folder with every job that is ever submitted, the cluster, and \
what becomes of its
machines and prices. It looks like a [snapshot](snapshot-format.md), with `workload.csv` in place \
of `jobs.csv`; cells,
units and defaults are the same. Written by `scripts/generators/generate_format_docs.py` from
`allocator/domain/schema/workload_columns.py`; `allocator schema workload` prints the same as JSON
Schema,
`allocator validate FOLDER` lists every fault with its file and line. In Python: \
`allocator.read_workload(folder)`,
`allocator.write_workload(folder, {{"workload": frame, "pools": ..., "rates": ...}})`.

- **Clock.** All times are seconds on one clock, that of `submitted_s`; it may start anywhere. The \
workload starts at
  the earliest submission, or at `now_s` of config.toml if that is earlier.
- **Order.** Jobs may be listed in any order; they are taken by `submitted_s`, those of one moment \
as listed.
- **Nothing has started.** The columns of jobs.csv that only a job under way has are ignored with \
a warning
  ({", ".join(UNDER_WAY)}),
  and so are placements.csv and received.csv.
- **Predecessors.** A job starts when all jobs of its `after` are done; a name that is no job of \
the workload counts as
  done, with a warning.
- **What changes.** A row of capacity.csv or prices.csv holds from its `at_s` on, until the next \
one of its pool. Rows
  not after the start say what holds at the start. Where both files give the GPUs of a pool at one \
time, capacity.csv
  wins.
- **Nodes.** Where nodes.csv lists nodes of a pool, its GPUs are those of the nodes that are up, \
whatever the other
  files say. A row of node_events.csv gives a node a state from its `at_s` on; rows not after the \
start say what holds at
  the start.
- **Speed.** At least one of rates.csv and models.csv is there, and every model has a row in one \
of them.

The smallest workload, three jobs on a pool of 8 GPUs that loses 4 of them after an hour:

    workload.csv                                                    pools.csv
    job_id,submitted_s,model,total_work,requested_gpus,max_gpus     pool,gpu_type,gpus
    a,0,bert,90000,4,8                                              main,A100,8
    b,60,bert,30000,1,4
    c,600,bert,50000,2,8

    rates.csv                                                       capacity.csv
    model,gpu_type,gpus,work_per_s                                  at_s,pool,gpus
    bert,A100,1,10                                                  3600,main,4
    bert,A100,8,60
"""


TABLE_DOCS = {
    "longrun": (
        "the long-run budget of the cluster, see [budgets](budgets.md); rounds of a controller also"
        " keep their books there"
    ),
    "horizon": "how far the policy `horizon` looks ahead, see [looking ahead](horizon.md)",
    "profiling": "what rounds may spend on learning speeds, see [speed models](speed-models.md)",
    "rental": "how the policy `rental` splits a class of jobs, see [renting](rental.md)",
    "topology": "where the nodes of nodes.csv stand",
}


def main() -> None:
    """Write both pages into the folder of the documentation."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    for name, text in pages().items():
        (docs / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each page by name."""
    return {
        "snapshot-format.md": page(HEAD, CONFIG, TABLES),
        "workload-format.md": page(WORKLOAD_HEAD, WORKLOAD_CONFIG, WORKLOAD_TABLES),
    }


def page(head: str, config: tuple[Column, ...], tables: Mapping[str, TableSchema]) -> str:
    """Return the introduction, then a section for each file."""
    parts = [head, section("config.toml (optional)", "settings of the round", config)]
    parts += [
        section(f"[{name}] of config.toml (optional)", TABLE_DOCS[name], columns)
        for name, columns in CONFIG_TABLES.items()
        if columns
    ]
    parts += [
        section(f"{t.file}{'' if t.required else ' (optional)'}", t.doc, t.columns)
        for t in tables.values()
    ]
    return "\n".join(parts)


def section(title: str, doc: str, columns: tuple[Column, ...]) -> str:
    """Return one file as a heading, a sentence and a table."""
    lines = [
        f"## {title}",
        "",
        f"{doc[0].upper()}{doc[1:]}.",
        "",
        "| column | type | default | range | meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{c.name}` | {c.kind} | {default(c)} | {limits(c)} | {c.doc} |".replace("  ", " ")
        for c in columns
    ]
    return "\n".join(lines) + "\n"


def default(c: Column) -> str:
    """Return what an empty cell means."""
    if c.required:
        return "required"
    if c.default == RULE:
        return "see meaning"
    return (
        "none"
        if c.default is None
        else str(c.default).lower()
        if isinstance(c.default, bool)
        else str(c.default)
    )


def limits(c: Column) -> str:
    """Return the allowed values in words."""
    if c.choices:
        return ", ".join(c.choices)
    low = (
        f"> {c.above:g}"
        if math.isfinite(c.above)
        else f">= {c.low:g}"
        if math.isfinite(c.low)
        else ""
    )
    high = f"<= {c.high:,.0f}" if math.isfinite(c.high) else ""
    return " and ".join(x for x in (low, high) if x)


if __name__ == "__main__":
    main()
