"""A real Slurm on this machine: one slurmctld and a slurmd for each of some fake nodes with GPUs.

    with SlurmCluster() as slurm:
        job = slurm.run("sbatch", "--parsable", "--gres=gpu:2", "--wrap", "sleep 60").strip()

It needs the Debian packages of REQUIRED_PACKAGES and root; `.ci/run` installs them, and says so if
they are not to be had. A test without them is skipped with the reason. GPUs are links
to /dev/null: jobs get a true CUDA_VISIBLE_DEVICES. There is no munge (`auth/none`), so that any
account can be tried. Every cluster has a folder and ports of its own, so many may run at a time.
The folder is one that other accounts can read, unlike those of pytest, and is removed at the end.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from machine import PATH, find_program, lack
from waiting import PATIENCE_S, marked, wait_for

REQUIRED_PACKAGES = ("slurmctld", "slurmd", "slurm-client")
PROGRAMS = ("slurmctld", "slurmd", "squeue", "scontrol", "sbatch", "scancel", "sinfo", "setpriv")
CLIENTS = ("squeue", "scontrol", "sinfo", "sbatch", "scancel", "sacctmgr")
PORTS = range(10_000, 32_000)
CALL_S = 60.0
LIVE_STATES = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STAGE_OUT,STOPPED"

CONFIG = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={port}
AuthType=auth/none
CryptoType=crypto/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=2,sched_min_interval=0,batch_sched_delay=0,\
default_queue_depth=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
KillWait=5
SlurmctldTimeout=30
SlurmdTimeout={slurmd_timeout_s}
InactiveLimit=0
Waittime=0
JobRequeue=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PriorityType=priority/multifactor
TreeWidth=65533
MaxJobCount=20000
MaxArraySize=20001
SlurmdParameters=config_overrides
MailProg=/bin/true
"""


@dataclass(frozen=True)
class FakeNodes:
    """Equal nodes of one partition, named `prefix` and a number from 1."""

    partition: str
    prefix: str
    count: int
    gpu_type: str
    gpus: int

    @property
    def names(self) -> list[str]:
        return [f"{self.prefix}{i}" for i in range(1, self.count + 1)]


SMALL = (FakeNodes("a100", "n", 4, "a100", 4), FakeNodes("v100", "v", 2, "v100", 8))


def missing_programs() -> list[str]:
    """The programs that a cluster needs and this machine has not; not to be root counts as one."""
    missing = [name for name in PROGRAMS if find_program(name) is None]
    return missing + ["the superuser"] * (os.geteuid() != 0)


class SlurmCluster:
    """A Slurm of its own; a context, which ends everything that it started.

    `lua` is the text of a job_submit plugin. `config` are further lines of slurm.conf.
    """

    def __init__(
        self,
        nodes: tuple[FakeNodes, ...] = SMALL,
        *,
        lua: str = "",
        config: str = "",
        slurmd_timeout_s: int = 30,
    ) -> None:
        if missing := missing_programs():
            lack(
                f"a real Slurm needs {', '.join(missing)} (as root: apt-get install"
                f" {' '.join(REQUIRED_PACKAGES)})"
            )
        self.nodes = nodes
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        # in which Slurm's commands speak to this cluster
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": PATH}
        self.node_names = [name for group in nodes for name in group.names]
        self._lua, self._config, self._timeout_s = lua, config, slurmd_timeout_s
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def conf(self) -> Path:
        """slurm.conf, for SLURM_CONF."""
        return self.folder / "etc" / "slurm.conf"

    def __enter__(self) -> SlurmCluster:
        self._write_files()
        try:
            self.start_controller()
            for name in self.node_names:
                self.start_node(name)
            wait_for(self._is_ready, every_s=0.1)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_files(self) -> None:
        for name in ("etc", "state", "log", "run", "dev", "work"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "work").chmod(0o777)
        most = max(group.gpus for group in self.nodes)
        for i in range(most):
            (self.folder / "dev" / f"gpu{i}").symlink_to("/dev/null")
        ports = free_ports(1 + len(self.node_names))
        text = CONFIG.format(root=self.folder, port=ports[0], slurmd_timeout_s=self._timeout_s)
        gres = ["AutoDetect=off"]
        lines = []
        waiting_ports = iter(ports[1:])
        for group in self.nodes:
            last = group.gpus - 1
            files = f"{self.folder}/dev/gpu[0-{last}]" if last else f"{self.folder}/dev/gpu0"
            for name in group.names:
                (self.folder / "spool" / name).mkdir(parents=True)
                lines.append(
                    f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname=localhost"
                    f" Port={next(waiting_ports)} CPUs=64 RealMemory=1000"
                    f" Gres=gpu:{group.gpu_type}:{group.gpus} State=UNKNOWN"
                )
                gres.append(f"NodeName={name} Name=gpu Type={group.gpu_type} File={files}")
        for number, partition in enumerate(dict.fromkeys(g.partition for g in self.nodes)):
            names = [n for g in self.nodes if g.partition == partition for n in g.names]
            lines.append(
                f"PartitionName={partition} Nodes={','.join(names)} MaxTime=INFINITE State=UP"
                f" Default={'NO' if number else 'YES'}"
            )
        if self._lua:
            lines.append("JobSubmitPlugins=lua")
            (self.folder / "etc" / "job_submit.lua").write_text(self._lua)
        self.conf.write_text("\n".join([text + self._config, *lines, ""]))
        (self.folder / "etc" / "gres.conf").write_text("\n".join([*gres, ""]))

    def hasty_conf(self) -> Path:
        """A slurm.conf, for SLURM_CONF, by which commands give up soon if slurmctld is down."""
        hasty = self.conf.with_name("hasty.conf")
        hasty.write_text(self.conf.read_text() + "MessageTimeout=2\n")
        return hasty

    def start_controller(self) -> None:
        """Start slurmctld, and wait until it answers."""
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        wait_for(self._answers, every_s=0.05)

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        self._start(name, "slurmd", "-N", name, "-D", "-f", str(self.conf))

    def kill(self, daemon: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End "slurmctld" or the slurmd of a node, and wait for that."""
        process = self._daemons.pop(daemon)
        process.send_signal(how)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End jobs, nodes and the controller."""
        if "slurmctld" in self._daemons:
            with suppress(subprocess.SubprocessError, AssertionError):
                self.end_jobs(10.0)
        for name in [*self._daemons][::-1]:
            self.kill(name, signal.SIGTERM)
        for pid in marked(f"SLURM_CONF={self.conf}"):  # steps that outlived their slurmd
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *argv: str, user: str = "") -> str:
        """The standard output of a command of Slurm; as another user if `user` is given.

        Raises CalledProcessError if it fails.
        """
        return self.call(*argv, user=user, is_checked=True).stdout

    def call(
        self, *argv: str, user: str = "", is_checked: bool = False, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command of Slurm in the folder `work`, with its exit code and both outputs."""
        other = ("setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups") if user else ()
        return subprocess.run(
            [*other, *argv],
            cwd=self.folder / "work",
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=CALL_S,
            check=is_checked,
        )

    def commands_as(self, user: str) -> Path:
        """A folder for PATH, in which Slurm's commands are run by another user."""
        folder = self.folder / f"commands-of-{user}"
        folder.mkdir(exist_ok=True)
        for name in CLIENTS:
            real = shutil.which(name, path=self.environment["PATH"])
            become = f"setpriv --reuid={user} --regid=nogroup --clear-groups"
            (folder / name).write_text(f'#!/bin/sh\nexec {become} {real} "$@"\n')
            (folder / name).chmod(0o755)
        return folder

    def submit(self, *options: str, wrap: str = "sleep 600", user: str = "") -> str:
        """Submit a batch job without an output file; return its id."""
        argv = ("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", wrap)
        return self.run(*argv, user=user).strip()

    def states(self) -> dict[str, str]:
        """State of every job, by id as squeue shows it."""
        rows = self.run("squeue", "-h", "-a", "-r", "-t", "all", "-o", "%i|%T").split()
        return dict(row.split("|") for row in rows)

    def wait_for_state(self, job: str, *states: str) -> None:
        """Until the job has one of these states."""
        wait_for(lambda: self.states().get(job) in states, every_s=0.1)

    def gpus(self, job: str) -> int:
        """GPUs that are allocated to a job, whatever it asked for."""
        shown = self.run("scontrol", "show", "job", "-d", "-o", job)
        found = re.findall(r"JOB_GRES=gpu(?::[^:\s]+)?:(\d+)", shown)
        return sum(map(int, found))

    def reset(self) -> None:
        """Start what was killed, end all jobs, and take all nodes into service again."""
        if not self._runs("slurmctld"):
            self.start_controller()
        for name in self.node_names:
            if not self._runs(name):
                self.start_node(name)
        self.end_jobs()
        for name in self.node_names:
            self.call("scontrol", "update", f"NodeName={name}", "State=RESUME")
        wait_for(self._is_ready, every_s=0.1)

    def _runs(self, daemon: str) -> bool:
        return daemon in self._daemons and self._daemons[daemon].poll() is None

    def _start(self, name: str, *argv: str) -> None:
        with open(self.folder / "log" / f"{name}.out", "ab") as log:
            self._daemons[name] = subprocess.Popen(
                argv, env=self.environment, stdout=log, stderr=log, stdin=log
            )

    def _answers(self) -> bool:
        assert self._daemons["slurmctld"].poll() is None, (
            self.folder / "log" / "slurmctld.out"
        ).read_text()[-2000:]
        try:
            return self.call("squeue", "-h").returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _is_ready(self) -> bool:
        shown = self.call("sinfo", "-h", "-N", "-t", "idle,mix,alloc", "-o", "%N").stdout
        return set(shown.split()) >= set(self.node_names)

    def end_jobs(self, patience_s: float = PATIENCE_S) -> None:
        """End all jobs, and wait until their GPUs are free."""
        ids = self.run("squeue", "-h", "-o", "%A").split()
        if ids:
            self.call("scancel", "--full", "--signal=KILL", *dict.fromkeys(ids))
            self.call("scancel", *dict.fromkeys(ids))
        wait_for(lambda: not self.run("squeue", "-h", "-t", LIVE_STATES), patience_s, 0.1)


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on, below those that the system gives to clients."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports")
