"""The formats of traces by name.

To add a format, write its module (see the docstring of the package) and add one line here.
"""

from collections.abc import Mapping

from allocator.io.formats import ExtraOption, FormatEntry

_HERE = "allocator.io.traces"
FORMATS: Mapping[str, FormatEntry] = {
    "philly": FormatEntry(
        f"{_HERE}.philly", "CSV", "Philly jobs: timestamp, duration, num_gpus, cluster"
    ),
    "sia": FormatEntry(
        f"{_HERE}.sia",
        "CSV",
        "Sia or Pollux workload with measured profiles",
        (
            ExtraOption(
                "profiles",
                "DIR",
                "folder with one folder per application (default: `profiles` next to or above"
                " SOURCE)",
            ),
            ExtraOption(
                "speed",
                "KIND",
                "goodput (default): best batch size; batches: a row per batch size; tuned: only at"
                " the batch size of each job; samples: as if every sample counted alike",
            ),
            ExtraOption(
                "calibrate",
                "yes|no",
                "divide speeds by the measured slow-down of a real cluster (default: yes)",
            ),
        ),
    ),
    "alibaba-openb": FormatEntry(
        f"{_HERE}.openb",
        "CSV",
        "Alibaba 2023 pods and nodes",
        (
            ExtraOption(
                "nodes", "FILE", "node list (default: openb_node_list_gpu_node.csv next to SOURCE)"
            ),
        ),
    ),
    "gavel": FormatEntry(
        f"{_HERE}.gavel",
        "TRACE",
        "Gavel or Shockwave trace with steps per second",
        (
            ExtraOption(
                "throughputs",
                "FILE",
                "JSON of steps per second (default: simulation_throughputs.json next to it)",
            ),
        ),
    ),
    "slurm": FormatEntry(
        f"{_HERE}.sites.slurm",
        "FILE",
        "what sacct --parsable2 prints, - for standard input",
        (
            ExtraOption("tenant", "WHAT", "account (default), user, qos or partition"),
            ExtraOption("pools", "WHAT", "a pool for each GPU type (default), or each partition"),
            ExtraOption("weight", "WHAT", "of jobs: equal (default), or priority"),
        ),
        has_types=True,
    ),
    "kueue": FormatEntry(
        f"{_HERE}.sites.kueue",
        "JSON",
        "what kubectl get workloads,events --all-namespaces -o json prints",
        (
            ExtraOption("tenant", "WHAT", "queue (default), namespace or cluster-queue"),
            ExtraOption("weight", "WHAT", "of jobs: equal (default), or priority"),
            ExtraOption("until", "DATE", "when it was printed: until then open workloads ran"),
        ),
        has_types=True,
    ),
    "prometheus": FormatEntry(
        f"{_HERE}.sites.prometheus",
        "SOURCE",
        "pods with GPUs: kube-state-metrics and DCGM, from a server or its answers",
        (ExtraOption("step", "SECONDS", "between two samples of a server (default: 60)"),),
        has_types=True,
    ),
    "csv": FormatEntry(
        f"{_HERE}.plain",
        "CSV",
        "any table of jobs (Helios and others); columns by --map",
        (
            ExtraOption(
                "map",
                "FIELD=COLUMN",
                "which column is submitted_s, duration_s, started_s, ended_s, gpus, job_id, "
                "tenant, model",
            ),
            ExtraOption("where", "COLUMN=A|B", "keep only rows with one of these texts"),
            ExtraOption("unit", "UNIT", "of times that are no dates: s (default), ms, min, h"),
        ),
    ),
}
