"""Columns of jobs.csv as options of the queue's command line."""

from __future__ import annotations

from allocator.io.progress_sources import LOG, METRIC, URL

JOB_OPTIONS = (  # column of jobs.csv, metavar, help
    ("job_id", "NAME", "unique name (default: made of the model and a number; then give a --key)"),
    ("model", "NAME", "key into rates.csv"),
    ("total_work", "W", "whole work of the job, in the model's unit"),
    ("max_gpus", "N", "largest size"),
    ("min_gpus", "N", "smallest size (default: 1)"),
    ("requested_gpus", "N", "the size its user asks for (default: min_gpus)"),
    ("sizes", "N|N", 'allowed sizes, "1|2|4"'),
    ("gpu_types", "T|T", 'allowed GPU types, "A100|V100" (default: any)'),
    ("tenant", "NAME", 'who pays (default: "default")'),
    ("weight", "X", "scales its value (default: 1)"),
    ("deadline_s", "TIME", "by which it should be done: 2h from now, a date, or unix seconds"),
    ("preemptible", "BOOL", "false: while running it may not be paused, moved or resized"),
    ("restart_s", "TIME", "pause when its allocation changes"),
    ("resizes_left", "N", "changes it can stand"),
    ("memory_gb", "GB", "per GPU, for sharing"),
    ("checkpoint_s", "TIME", "cost of a checkpoint"),
    ("checkpoint_every_s", "TIME", "interval of checkpoints"),
    ("modes", "M|M", 'ways to keep its workers in step, "bulk|backup:2" (default: bulk)'),
    ("after", "J|J", "starts when these jobs are done"),
    ("every_s", "TIME", "periodic: it comes again so often"),
    ("times", "N", "how many times a periodic job comes (default: until it is cancelled)"),
    ("best_effort", "BOOL", "true: it has no guarantee, and may share GPUs with jobs that have"),
    ("interactive", "BOOL", "true: somebody waits for it; GPUs may be kept for such jobs"),
    ("shrinkable", "BOOL", "true: it gives GPUs above min_gpus back at short notice"),
    ("cpus_per_gpu", "N", "CPUs of the node for each of its GPUs"),
    ("host_memory_gb_per_gpu", "GB", "memory of the node for each of its GPUs"),
    ("gpu_fraction", "X", "share of one GPU, in pools with nodes (max_gpus is then 1)"),
    ("placement", "WORD", "packed (default), spread, same_rack, prefer_rack ..."),
    ("target_loss", "X", "done when its training loss is as low; --total-work is then the most"),
    ("submitted_s", "TIME", "from which on it counts, as for the deadline (default: now)"),
)
CHANGEABLE = ("weight", "min_gpus", "max_gpus", "requested_gpus", "sizes", "deadline_s")
"""Those that `allocator queue change` changes; the library has the same list."""
PROGRESS_OPTIONS = (  # option, variable of the job, metavar, help
    (
        "progress_log",
        LOG,
        "REGEX",
        "finds its progress in what it logs: (?P<work>...) or (?P<step>",
    ),
    ("progress_url", URL, "URL", "its metrics as text of Prometheus"),
    ("progress_metric", METRIC, "NAME", "metric there that counts its work"),
)
