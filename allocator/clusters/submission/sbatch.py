"""An sbatch script: what its #SBATCH lines ask for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath

from allocator.clusters.slurm.observe import split_sizes
from allocator.clusters.slurm.settings import WEEK_S, read_statement
from allocator.clusters.slurm.values import GpuRequest, read_request
from allocator.clusters.statements import split_progress
from allocator.clusters.submission.new_job import NewJob, Site, refuse
from allocator.domain.findings import did_you_mean, quote
from allocator.domain.times import parse_slurm_duration
from allocator.objects import Json

SHORT = {
    "A": "account",
    "G": "gpus",
    "J": "job-name",
    "N": "nodes",
    "a": "array",
    "b": "begin",
    "C": "constraint",
    "d": "dependency",
    "H": "hold",
    "n": "ntasks",
    "p": "partition",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
# what keeps a job waiting in Slurm, and is not looked at
LEFT_OUT = ("begin", "constraint", "dependency", "exclude", "hold", "nodelist", "reservation")
TRES = {
    "gpus": "tres_per_job",
    "gpus-per-node": "tres_per_node",
    "gpus-per-task": "tres_per_task",
    "gpus-per-socket": "tres_per_socket",
}
COUNT = re.compile(r"(?:[A-Za-z][\w.-]*:)?\d{1,7}")  # 4, a100:4
GRES = re.compile(r"gpu(?::[A-Za-z][\w.-]*)?(?::\d{1,7})?")
UNLIMITED = ("0", "infinite", "unlimited")


class _Script:
    """The options of a script: of several of one name the last counts, as in sbatch."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.options: dict[str, str] = {}
        self.lines: dict[str, int] = {}
        for name, value, line in _read_options(file, text):
            self.options[name] = value
            self.lines[name] = line

    def get(self, name: str, default: str = "") -> str:
        return self.options.get(name, default)

    def refuse(self, name: str, message: str) -> Exception:
        words = f"--{name} {quote(self.get(name))}: {message}"
        return refuse(self.file, self.lines.get(name), words)

    def count(self, name: str) -> int:
        """Return a number; of a range such as 2-4 the smaller one; 1 without the option."""
        match = re.fullmatch(r"(\d{1,7})(-\d+)?", self.get(name, "1"))
        if match is None or not int(match[1]):
            raise self.refuse(name, "write a whole number above 0")
        return int(match[1])


def read_script(file: str, text: str, site: Site, now_s: float) -> NewJob:
    """Return the job of an sbatch script as it would be observed. Raises InvalidInput."""
    script = _Script(file, text)
    request, asked = _read_request(script)
    allowed, notes = _allowed_pools(script, request, asked, site)
    said, faults = read_statement(script.get("comment"), script.get("extra"))
    if faults:
        raise script.refuse("comment" if "comment" in script.options else "extra", faults[0])
    columns = split_progress(said)[0]
    name = script.get("job-name") or PurePath(file).name
    most = max((site.gpus_per_node[pool] for pool in allowed), default=0)
    sizes, note = split_sizes(columns, request, request.gpus, most)
    limit = _time_limit(script)
    notes += [note] if note else []
    if limit is None and not {"total_work", "remaining_work"} & set(columns):
        notes.append(f"it has no --time; a week is taken ({WEEK_S:.0f} s)")
    work = columns.pop("total_work", None) or limit or WEEK_S
    types = sorted({site.gpu_types[pool] for pool in allowed})
    notes += [f"--{option} does not count here" for option in LEFT_OUT if option in script.options]
    if "array" in script.options:
        notes.append("one task of its array counts")
    row: Json = {
        "job_id": site.free_name(name),
        "submitted_s": now_s,
        "model": columns.pop("model", name),
        "tenant": script.get("account") or None,
        "remaining_work": columns.pop("remaining_work", work),
        "total_work": work,
        "gpu_types": types if set(types) != set(site.gpu_types.values()) else None,
        "time_limit_s": limit,
        **sizes,
        **columns,
    }
    stated = {"tenant": "account", "remaining_work": "time", "max_gpus": asked}
    lines = {
        column: script.lines[option] for column, option in stated.items() if option in script.lines
    }
    return NewJob(row, file, 1, lines, tuple(notes))


def _read_options(file: str, text: str) -> Iterator[tuple[str, str, int]]:
    """Yield options, values and line numbers of the lines before the first command."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.startswith("#"):
            return
        if not re.match(r"#SBATCH(\s|$)", line):
            continue
        try:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        except ValueError as error:
            raise refuse(file, number, f"#SBATCH: {str(error).lower()}") from None
        while words:
            word = words.pop(0)
            name, sign, value = word.partition("=")
            if re.match(r"-[A-Za-z]", word):
                name, value, sign = word[1], word[2:].removeprefix("="), word[2:]
                name = SHORT.get(name, name)
            elif not word.startswith("--"):
                raise refuse(file, number, f"#SBATCH {quote(word)} is no option of sbatch")
            if not sign and words and not words[0].startswith("-"):
                value = words.pop(0)
            yield name.removeprefix("--"), value, number


def _read_request(script: _Script) -> tuple[GpuRequest, str]:
    """Return what a script asks for, and by which option."""
    nodes = script.count("nodes")
    has_tasks = "ntasks" in script.options
    tasks = script.count("ntasks") if has_tasks else nodes * script.count("ntasks-per-node")
    record: Json = {"node_count": nodes, "tasks": tasks}
    asked = []
    for option, field in TRES.items():
        if option in script.options:
            parts = script.get(option).split(",")
            if not all(map(COUNT.fullmatch, parts)):
                raise script.refuse(option, "write a number of GPUs, such as 4 or a100:4")
            record[field] = ",".join(f"gpu:{part}" for part in parts)
            asked.append(option)
    parts = [part for part in script.get("gres").split(",") if re.match(r"gpu\b", part)]
    if parts:
        if not all(map(GRES.fullmatch, parts)):
            raise script.refuse("gres", "write GPUs as gpu:4 or gpu:a100:4")
        record["tres_per_node"] = ",".join(parts)
        asked.insert(0, "gres")
    request = read_request(record)
    if request is None or not request.gpus:
        raise refuse(
            script.file,
            None,
            "asks for no GPUs: it has no #SBATCH line with --gres=gpu:N, --gpus, --gpus-per-node or"
            " --gpus-per-task",
        )
    return request, asked[0]


def _allowed_pools(
    script: _Script, request: GpuRequest, asked: str, site: Site
) -> tuple[list[str], list[str]]:
    """Return the pools that the partition and the GPU type leave, and notes."""
    wanted = set(filter(None, script.get("partition").split(",")))
    known = sorted({name for names in site.partitions.values() for name in names})
    pools = [
        pool
        for pool, names in site.partitions.items()
        if pool in site.gpu_types and (not wanted or wanted & set(names))
    ]
    if not pools:
        name = sorted(wanted)[0]
        near = did_you_mean(name, known)
        raise script.refuse("partition", f"no pool is in it{near} (there are {', '.join(known)})")
    notes = [] if wanted else ["it names no --partition; any pool counts"]
    if request.gpu_type is None:
        return pools, notes
    try:
        types = site.find_types(request.gpu_type)
    except ValueError as error:
        raise script.refuse(asked, str(error)) from None
    of_type = [pool for pool in pools if site.gpu_types[pool] in types]
    if not of_type:
        names = ", ".join(sorted(wanted))
        raise script.refuse(asked, f"no pool of partition {names} has such GPUs")
    return of_type, notes


def _time_limit(script: _Script) -> float | None:
    """Return the time limit in seconds, None without one."""
    text = script.get("time")
    if not text or text.casefold() in UNLIMITED:
        return None
    try:
        return parse_slurm_duration(text)
    except ValueError as error:
        raise script.refuse("time", str(error)) from None
