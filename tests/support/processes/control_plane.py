"""Start a real Kubernetes: etcd, an API server with RBAC, a controller manager, a scheduler.

The programs are read from the folder that KUBEBUILDER_ASSETS names, as in other tests of the
Kubernetes ecosystem; the default is /usr/local/kubebuilder/bin. If there is a folder `kueue-crds`
beside it, the resource definitions of Kueue are read from there. There is no kubelet, so each test
sets the status of pods itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import yaml
from kubernetes_objects import Object, kubeconfig
from machine import lack
from slurm_cluster import free_ports
from waiting import wait_for

from allocator.clusters.adapter import ClusterUnreachable, Refused
from allocator.clusters.kubernetes.api import ClientApi, Request

ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS", "/usr/local/kubebuilder/bin"))
NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
USERS = ("admin", "bob")  # bob has no rights


class ControlPlane(ExitStack):
    """Start the processes at the beginning of a `with` block, and end them at its end."""

    def __enter__(self) -> Self:
        if missing := [name for name in NEEDED if not (ASSETS / name).exists()]:
            lack(f"a real Kubernetes needs {', '.join(missing)} in {ASSETS} (KUBEBUILDER_ASSETS)")
        self.folder = Path(tempfile.mkdtemp(prefix="kubernetes-", dir="/tmp"))
        self.callback(shutil.rmtree, self.folder, ignore_errors=True)
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def kubeconfig(self, user: str) -> str:
        """Return the path of the kubeconfig file of a user."""
        return str(self.folder / user / "kubeconfig")

    def send(self, method: str, path: str, body: Object | None = None, **more: Any) -> Object:
        """Send a request as the superuser, and return the answer."""
        return self.api.send(Request(method, path, body, **more))

    def _start(self) -> None:
        ports = free_ports(5)
        store, peers, server = (f"http://127.0.0.1:{port}" for port in ports[:3])
        address = server.replace("http", "https")
        tokens = [
            f"{user},{user},{user},{'system:masters' * (not n)}" for n, user in enumerate(USERS)
        ]
        (self.folder / "tokens.csv").write_text("\n".join(tokens))
        key = str(self.folder / "key")
        subprocess.run(["openssl", "genrsa", "-out", key], check=True, capture_output=True)
        etcd = ["--data-dir=data", f"--listen-client-urls={store}", f"--listen-peer-urls={peers}"]
        etcd += [f"--advertise-client-urls={store}", f"--initial-cluster=default={peers}"]
        etcd += [f"--initial-advertise-peer-urls={peers}"]
        is_plain = subprocess.run([ASSETS / "etcd", "--version"], capture_output=True, check=False)
        self._run("etcd", *(["data", store, peers] if is_plain.returncode else etcd))
        self._run(
            "kube-apiserver",
            *(f"--etcd-servers={store}", f"--secure-port={ports[2]}", "--bind-address=127.0.0.1"),
            *("--cert-dir=certs", "--token-auth-file=tokens.csv", "--authorization-mode=RBAC"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--allow-privileged"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            *(
                "--service-cluster-ip-range=10.0.0.0/24",
                "--disable-admission-plugins=ServiceAccount",
            ),
        )
        authority = self.folder / "certs" / "apiserver.crt"
        wait_for(authority.exists, every_s=0.1)
        for user in USERS:
            (self.folder / user).mkdir()
            more = {"certificate-authority": str(authority)}
            path = kubeconfig(self.folder / user, address, **more)
            path.write_text(path.read_text().replace("secret", user))
        self.api = ClientApi(None, self.kubeconfig("admin"))
        wait_for(self._is_ready, every_s=0.2)
        for name, port in zip(NEEDED[2:], ports[3:], strict=True):
            more = (
                "--kubeconfig=admin/kubeconfig",
                "--leader-elect=false",
                f"--secure-port={port}",
            )
            self._run(name, *more)
        for path in sorted(ASSETS.parent.glob("kueue-crds/*.yaml")):
            definition = yaml.safe_load(path.read_text())
            definition["spec"].pop("conversion", None)
            place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            self.send("POST", place, definition)

    def _run(self, name: str, *argv: str) -> None:
        log = self.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen([ASSETS / name, *argv], cwd=self.folder, stdout=log, stderr=log)
        self.callback(process.wait)
        self.callback(process.send_signal, signal.SIGKILL)

    def _is_ready(self) -> bool:
        with suppress(ClusterUnreachable, Refused):
            return "ok" in self.api.send(Request("GET", "/readyz", is_text=True))["text"]
        return False
