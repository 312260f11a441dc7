"""A fake of an API server and of the controllers behind it. It is no Kubernetes.

It keeps objects, checks built-in kinds by the published schemas, applies on the server's side with
owners of fields, refuses what an API server refuses of Jobs, and plays the Job controller, the
scheduler and the kubelet in steps. What it does not know it refuses, so that a test cannot pass by
its silence.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from crd_schemas import find_core_faults, find_faults, immutable_fields
from kubernetes_objects import refer_to

from allocator.clusters.adapter import ClusterUnreachable, Refused
from allocator.clusters.kubernetes.api import APPLY, RESOURCES, REVIEWS, Reader, Request, path_of

Object = dict[str, Any]
KEYED = ("name", "type", "uid")  # keys of the lists that are merged entry by entry
ATOMIC = ("nodeSelectorTerms", "tolerations", "podSetUpdates", "finalizers", "command", "args")
BUILT_IN = ("Node", "Pod", "Job", "ResourceQuota")
BY_PLURAL = {one.plural: kind for kind, one in RESOURCES.items()}
GPU = "nvidia.com/gpu"
V1 = {"apiVersion": "v1"}


@dataclass(frozen=True)
class Place:
    """What a path names."""

    kind: str
    namespace: str
    name: str
    subresource: str


def merge(old: Any, new: Any, key: str = "") -> Any:
    """Old values with new ones: objects by field, lists with names by entry, all else replaced."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        merged = dict(old)
        for name, value in new.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = merge(old.get(name), value, name)
        return merged
    by = key_of(new, key)
    if isinstance(old, list) and isinstance(new, list) and by:
        entries = {one.get(by): one for one in old}
        for one in new:
            entries[one[by]] = merge(entries.get(one[by]), one)
        return list(entries.values())
    return copy.deepcopy(new)


def key_of(value: Any, name: str) -> str | None:
    """The key that tells the entries of a list of this name; None: it is replaced as a whole."""
    if not isinstance(value, list) or not value or name in ATOMIC:
        return None
    return next(
        (k for k in KEYED if all(isinstance(one, Mapping) and k in one for one in value)), None
    )


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the fields that an applied document owns."""
    if isinstance(value, Mapping) and value:
        for name, one in value.items():
            yield from leaves(one, (*path, name))
    elif isinstance(value, list) and path and (by := key_of(value, path[-1])):
        for one in value:
            yield from leaves(one, (*path, f"{by}={one[by]}"))
    elif path[:1] in (("spec",), ("status",)) or path[:2] in (
        ("metadata", "annotations"),
        ("metadata", "labels"),
    ):
        yield path


def get(value: Any, *path: str) -> Any:
    """The field at a path, or None."""
    for name in path:
        if isinstance(value, list):
            by, _, wanted = name.partition("=")
            value = next((one for one in value if str(one.get(by)) == wanted), None)
        else:
            value = value.get(name) if isinstance(value, Mapping) else None
    return value


class FakeServer:
    """Objects, requests that came, and faults to come.

    faults : what becomes of the next changes, in turn: "" nothing, "500 before" refused and not
    done, "500 after" done and the answer lost, "409", "422", "429 before". faults_at : the same for
    requests of any kind, by their number; "nonsense after": an empty object as the answer.
    """

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.owners: dict[tuple[str, str, str, str], set[tuple[str, ...]]] = {}
        self.requests: list[tuple[str, str, str]] = []  # verb, group, resource
        self.faults: deque[str] = deque()
        self.faults_at: dict[int, str] = {}
        self.denied: set[tuple[str, str]] = set()  # (verb, resource) that no account may do
        self.sent = 0
        self.expire_pages = 0
        self.page: int | None = None
        self.log = "3 3 loss=2.5\n"  # of every sidecar
        self.main_log = ""  # of every other container
        self.metrics: dict[str, str] = {}  # of every pod, by port and path
        self.version = 0
        self.breaches: list[str] = []
        for one in objects:
            self.put(one)

    # -- the store

    def put(self, value: Object) -> Object:
        """Store an object as it is."""
        self.version += 1
        stored = copy.deepcopy(value)
        meta = stored["metadata"]
        meta["resourceVersion"] = str(self.version)
        meta.setdefault("uid", f"uid-{self.version}")
        meta.setdefault("creationTimestamp", "2026-11-01T08:00:00Z")
        self.objects[self._key(stored)] = stored
        return stored

    def _key(self, value: Object) -> tuple[str, str, str]:
        meta = value["metadata"]
        is_namespaced = RESOURCES[value["kind"]].is_namespaced
        space = meta.setdefault("namespace", "default") if is_namespaced else ""
        return value["kind"], space, meta["name"]

    def all(self, kind: str) -> list[Object]:
        """Objects of a kind."""
        return [one for key, one in sorted(self.objects.items()) if key[0] == kind]

    def one(self, kind: str, name: str, namespace: str = "ml") -> Object:
        """The object of a name."""
        return self.objects[kind, namespace if RESOURCES[kind].is_namespaced else "", name]

    # -- requests

    def send(self, request: Request) -> Object:
        """Answer a request, with the fault whose turn it is."""
        fault = self.faults_at.get(self.sent, "")
        self.sent += 1
        if not fault and request.method != "GET" and self.faults:
            fault = self.faults.popleft()
        if fault.endswith("before"):
            raise ClusterUnreachable(f"{fault[:3]} of the fake server")
        if fault and not fault.endswith("after"):
            raise Refused(int(fault[:3]), f"{fault[:3]} of the fake server")
        answer = self._get(request) if request.method == "GET" else self._change(request)
        if fault == "nonsense after":
            return {"text": ""} if request.is_text else {}
        if fault:
            raise ClusterUnreachable(f"{fault[:3]} of the fake server")
        return answer

    def apply(self, document: Mapping[str, Any]) -> Object:
        """The answer to a document that is applied as kubectl does it."""
        resource, meta = Reader(self).resource(document["kind"]), document["metadata"]
        assert resource is not None
        path = path_of(resource, meta["namespace"], meta["name"])
        path += "/status" * ("status" in document) + "?fieldManager=allocator&force=true"
        return self.send(Request("PATCH", path, document, APPLY))

    def _place(self, path: str) -> tuple[Place, dict[str, str]]:
        split = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        parts = split.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        space = ""
        if parts and parts[0] == "namespaces" and len(parts) > 2:
            space, parts = parts[1], parts[2:]
        kind = BY_PLURAL[parts[0]]
        names = [*parts[1:], "", ""]
        return Place(kind, space, names[0], names[1]), query

    def _record(self, request: Request, place: Place, verb: str = "") -> None:
        about = RESOURCES[place.kind]
        plural = about.plural + (f"/{place.subresource}" if place.subresource else "")
        self.requests.append((verb or request.method.lower(), about.group, plural))

    def _get(self, request: Request) -> Object:
        if (found := self._discovery(request.path.partition("?")[0])) is not None:
            return found
        place, query = self._place(request.path)
        self._record(request, place, "get" if place.name else "list")
        if place.subresource == "log":
            self._find(Place(place.kind, place.namespace, place.name, ""))
            return {"text": self.log if query["container"] == "progress" else self.main_log}
        if place.subresource == "proxy":
            name, _, port = place.name.partition(":")
            self._find(Place(place.kind, place.namespace, name, ""))
            rest = urlsplit(request.path).path.partition("/proxy")[2]
            if port + rest not in self.metrics:
                raise Refused(503, "no endpoints available")
            return {"text": self.metrics[port + rest]}
        if place.name:
            return copy.deepcopy(self._find(place))
        wanted = dict(p.split("=") for p in query.get("labelSelector", "").split(",") if p)
        found = [
            one
            for one in self.all(place.kind)
            if place.namespace in ("", get(one, "metadata", "namespace"))
            and all(get(one, "metadata", "labels", k) == v for k, v in wanted.items())
        ]
        begin = int(query.get("continue", "0"))
        if begin and self.expire_pages:
            self.expire_pages -= 1
            raise Refused(410, "the provided continue parameter is too old")
        size = self.page or int(query.get("limit", "500"))
        more = {"continue": str(begin + size)} if begin + size < len(found) else {}
        items = [copy.deepcopy(one) for one in found[begin : begin + size]]
        about, meta = RESOURCES[place.kind], {**more, "resourceVersion": str(self.version)}
        version = f"{about.group}/{about.version or 'v1beta2'}" if about.group else "v1"
        found_list = {"kind": f"{place.kind}List", "apiVersion": version}
        return {**found_list, "metadata": meta, "items": items}

    def _discovery(self, path: str) -> Object | None:
        """The group that a path such as /apis/batch names."""
        match path.strip("/").split("/"):
            case ["apis", group]:
                found = {one.group: one for k, one in RESOURCES.items() if self.all(k)}
                if group not in found:
                    raise Refused(404, "the server could not find the requested resource")
                return {"preferredVersion": {"version": found[group].version or "v1beta2"}}
        return None

    def _find(self, place: Place) -> Object:
        key = (place.kind, place.namespace, place.name)
        if key not in self.objects:
            raise Refused(404, f'{place.kind} "{place.name}" not found')
        return self.objects[key]

    def _change(self, request: Request) -> Object:
        if request.path == REVIEWS:
            asked = (request.body or {})["spec"]["resourceAttributes"]
            return {"status": {"allowed": (asked["verb"], asked["resource"]) not in self.denied}}
        place, query = self._place(request.path)
        self._record(request, place)
        body = copy.deepcopy(dict(request.body or {}))
        if request.method == "DELETE":
            if faults := find_core_faults("DeleteOptions", body):
                raise Refused(400, f"DeleteOptions: {faults}")
            return self._delete(place, body)
        if request.method != "PATCH":
            raise Refused(405, f"the fake server knows no {request.method}")
        if request.content_type == APPLY:
            return self._apply(place, body, query)
        found = self._find(place)
        asked = get(body, "metadata", "resourceVersion")
        if asked is not None and asked != found["metadata"]["resourceVersion"]:
            raise Refused(409, "the object has been modified")
        return self._store(place, found, merge(found, body))

    def _apply(self, place: Place, body: Object, query: Mapping[str, str]) -> Object:
        key = (place.kind, place.namespace, place.name)
        found = self.objects.get(key)
        if place.kind not in BUILT_IN and (faults := find_faults(body)):
            raise Refused(422, f"{place.kind} is invalid: {faults}")
        manager = query["fieldManager"]
        uid = get(body, "metadata", "uid")
        if found is None and (place.subresource or uid):
            status = 404 if place.subresource else 409
            raise Refused(status, f'{place.kind} "{place.name}" with this uid not found')
        if found is not None and uid not in (None, found["metadata"]["uid"]):
            raise Refused(409, f"the UID in the precondition ({uid}) does not match")
        asked = get(body, "metadata", "resourceVersion")
        if found is not None and asked not in (None, found["metadata"]["resourceVersion"]):
            raise Refused(409, "the object has been modified")
        owned, new = self.owners.get((*key, manager), set()), set(leaves(body))
        if found is None:
            self._record(Request("", ""), place, "create")
        base = copy.deepcopy(found) if found is not None else {}
        for path in owned - new:
            holder = get(base, *path[:-1])
            is_key = "=" in path[-2] and path[-2].startswith(f"{path[-1]}=")
            if isinstance(holder, dict) and not is_key:
                holder.pop(path[-1], None)
                self._prune(base, path[:-1])
        answer = self._store(place, found, merge(base, body))
        self.owners[*key, manager] = new
        return answer

    def _prune(self, base: Object, path: tuple[str, ...]) -> None:
        """Remove objects that are empty after a field was taken away."""
        while len(path) > 1 and get(base, *path) == {}:
            get(base, *path[:-1]).pop(path[-1])
            path = path[:-1]

    def _store(self, place: Place, old: Object | None, new: Object) -> Object:
        """Check and store; the status belongs to its subresource, and all else not to it."""
        if old is not None:
            kept = "spec" if place.subresource == "status" else "status"
            new.pop(kept, None)
            new |= copy.deepcopy({kept: old[kept]} if kept in old else {})
        new["metadata"].pop("managedFields", None)
        is_core = place.kind in BUILT_IN
        if is_core and (faults := find_core_faults(place.kind, new, is_partial=False)):
            raise Refused(422, f"{place.kind} is invalid: {faults}")
        checks = {"Job": self._check_job, "JobSet": self._check_job_set}
        checks["Workload"] = self._check_workload
        if old is not None and place.kind in checks:
            checks[place.kind](old, new)
        for path in immutable_fields(new["apiVersion"], place.kind) if old is not None else ():
            if get(old, *path) != get(new, *path):
                raise Refused(422, f"{'.'.join(path)}: field is immutable")
        if old is not None and old == new:
            return copy.deepcopy(old)
        if place.namespace:
            new["metadata"]["namespace"] = place.namespace
        stored = self.put(new)
        if place.kind == "Pod":
            self._remove_if_free(stored)
        return copy.deepcopy(stored)

    def _check_job(self, old: Object, new: Object) -> None:
        """Refuse what an API server refuses of changes of a Job."""
        before, after = old["spec"], new["spec"]
        is_indexed = before.get("completionMode") == "Indexed"
        if before.get("completions") != after.get("completions") and not (
            is_indexed and after.get("completions") == after.get("parallelism")
        ):
            raise Refused(422, "spec.completions: field is immutable")
        if before["template"] != after["template"]:
            a, b = copy.deepcopy((before["template"], after["template"]))
            for name in ("affinity", "nodeSelector", "tolerations"):
                a["spec"].pop(name, None), b["spec"].pop(name, None)
            if a != b or not before.get("suspend") or get(new, "status", "startTime"):
                raise Refused(422, "spec.template: field is immutable")
        is_removed = get(old, "status", "startTime") and not get(new, "status", "startTime")
        if is_removed and not after.get("suspend"):
            raise Refused(422, "status.startTime: cannot be removed of a Job that runs")

    def _check_job_set(self, old: Object, new: Object) -> None:
        """Refuse what the webhook of JobSet refuses: while it is suspended, before or after,
        labels, annotations, selector, tolerations and gates of pods may change, and nothing else.
        """
        is_suspended = old["spec"].get("suspend") or new["spec"].get("suspend")
        before, after = (copy.deepcopy(one["spec"]["replicatedJobs"]) for one in (old, new))
        for one in (*before, *after) if is_suspended else ():
            template = one["template"]["spec"]["template"]
            for name in ("labels", "annotations"):
                template.setdefault("metadata", {}).pop(name, None)
            for name in ("nodeSelector", "tolerations", "schedulingGates"):
                template["spec"].pop(name, None)
        if before != after:
            raise Refused(422, "spec.replicatedJobs: field is immutable")

    def _check_workload(self, old: Object, new: Object) -> None:
        """Refuse what the webhook of Kueue refuses: an answer that stays "Ready" stays as it is."""
        for one in get(old, "status", "admissionChecks") or ():
            after = get(new, "status", "admissionChecks", f"name={one['name']}")
            if one["state"] == get(after, "state") == "Ready" and (
                one.get("podSetUpdates") != get(after, "podSetUpdates")
            ):
                raise Refused(422, "status.admissionChecks.podSetUpdates: field is immutable")

    def _delete(self, place: Place, options: Object) -> Object:
        found = self._find(place)
        uid = get(options, "preconditions", "uid")
        if uid not in (None, found["metadata"]["uid"]):
            raise Refused(409, "the UID in the precondition does not match")
        found["metadata"]["deletionTimestamp"] = "2026-11-01T09:00:00Z"
        if place.kind == "Pod":
            self._remove_if_free(found)
        return copy.deepcopy(found)

    def _remove_if_free(self, pod: Object) -> None:
        is_over = get(pod, "status", "phase") in ("Succeeded", "Failed")
        meta = pod["metadata"]
        if meta.get("deletionTimestamp") and is_over and not meta.get("finalizers"):
            self.objects.pop(self._key(pod), None)

    # -- controllers

    def pods_of(self, job: Object) -> list[Object]:
        """Pods of a Job."""
        owner = f"uid={job['metadata']['uid']}"
        return [pod for pod in self.all("Pod") if get(pod, "metadata", "ownerReferences", owner)]

    def step(self) -> None:
        """Let every controller act once."""
        for pod in self.all("Pod"):
            self._step_pod(pod)
        for job in self.all("Job"):
            self._step_job(job)
        self._schedule()

    def _step_job(self, job: Object) -> None:
        pods = self.pods_of(job)
        status, spec = job.setdefault("status", {}), job["spec"]
        is_deleted = "deletionTimestamp" in job["metadata"]
        if is_deleted or spec.get("suspend"):
            for pod in pods:
                pod["metadata"].setdefault("deletionTimestamp", "2026-11-01T09:00:00Z")
                self._remove_if_free(pod)
            if is_deleted and not self.pods_of(job):
                self.objects.pop(self._key(job))
            return
        if status.get("conditions"):
            return
        status.setdefault("startTime", "2026-11-01T08:30:00Z")
        phases, kind = [one["status"]["phase"] for one in pods], ""
        if "Failed" in phases:
            kind, reason = "Failed", "BackoffLimitExceeded"
        elif phases.count("Succeeded") >= spec.get("completions", 1):
            kind, reason = "Complete", "CompletionsReached"
        if kind:
            ended = {"type": kind, "status": "True", "reason": reason, "message": reason}
            status["conditions"] = [ended]
            return
        for index in range(len(pods), spec.get("parallelism", 1)):
            self._create_pod(job, index)

    def _create_pod(self, job: Object, index: int) -> None:
        template, meta = job["spec"]["template"], job["metadata"]
        own = copy.deepcopy(template.get("metadata", {}))
        own.setdefault("labels", {})["batch.kubernetes.io/job-name"] = meta["name"]
        own |= {"name": f"{meta['name']}-{index}-{self.version}", "namespace": meta["namespace"]}
        own["ownerReferences"] = [refer_to({**job, "apiVersion": "batch/v1", "kind": "Job"})]
        spec, status = copy.deepcopy(template["spec"]), {"phase": "Pending"}
        self.put({"kind": "Pod", "metadata": own, "spec": spec, "status": status} | V1)

    def _schedule(self) -> None:
        from allocator.clusters.kubernetes.workloads.constraints import admits, placement_rules

        for pod in self.all("Pod"):
            wanted = gpus_of(pod["spec"])
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            for node in self.all("Node"):
                name = node["metadata"]["name"]
                about, spec = (node["metadata"]["labels"], name), node["spec"]
                fits = self.used(name) + wanted <= self.gpus(node)
                if spec.get("unschedulable") or not fits:
                    continue
                if admits(placement_rules(pod["spec"]), *about, spec.get("taints", ()), GPU):
                    pod["spec"]["nodeName"] = name
                    pod["status"]["phase"] = "Running"
                    break
        for node in self.all("Node"):
            if self.used(node["metadata"]["name"]) > self.gpus(node):
                self.breaches.append(f"{node['metadata']['name']} has more pods than GPUs")

    @staticmethod
    def gpus(node: Object) -> int:
        """GPUs that a node has."""
        return int(node["status"]["allocatable"].get(GPU, 0))

    def used(self, node: str) -> int:
        """GPUs of the pods that run on a node."""
        return sum(
            gpus_of(pod["spec"])
            for pod in self.all("Pod")
            if pod["spec"].get("nodeName") == node and pod["status"]["phase"] == "Running"
        )

    def _step_pod(self, pod: Object) -> None:
        """End a pod as its command says; a pod that is deleted ends with exit code 143."""
        if pod["status"]["phase"] not in ("Pending", "Running"):
            self._remove_if_free(pod)
            return
        words = " ".join(pod["spec"]["containers"][0].get("command", ()))
        kind = next((name for name in ("short", "failing") if f"kind={name}" in words), "endless")
        if pod["metadata"].get("deletionTimestamp"):
            self.finish(pod, 143)
        elif pod["status"]["phase"] == "Running" and kind != "endless":
            self.finish(pod, 0 if kind == "short" else 7)

    def finish(self, pod: Object, code: int, message: str = "3 3", reason: str = "") -> None:
        """End a pod with an exit code and last words."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
        container = {"name": "main", "image": "train:1", "imageID": "", "ready": False}
        container |= {"restartCount": 0, "state": {"terminated": ended}}
        pod["status"] = {
            "phase": "Failed" if code else "Succeeded",
            **({"reason": reason} if reason else {}),
            "containerStatuses": [container],
        }
        self._remove_if_free(pod)


def gpus_of(spec: Object) -> int:
    """GPUs of a pod."""
    return sum(int(get(one, "resources", "limits", GPU) or 0) for one in spec.get("containers", ()))
