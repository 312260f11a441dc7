"""Requests to an API server: what each kind is called there, lists in pages, refusals, and rights.

The server is that of a kubeconfig, by the access and the connections of the official client.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import urlencode

from allocator.clusters.adapter import ClusterUnreachable, Refused
from allocator.clusters.kubernetes.objects import Object
from allocator.errors import UsageError, install_command
from allocator.objects import Json

PAGE = 500  # objects of one answer
PATIENCE_S = 30.0  # for one answer
MANAGER = "allocator"  # field manager of all that the allocator writes
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"


@dataclass(frozen=True)
class Request:
    """One request.

    Parameters
    ----------
    method, path : str
        Method of HTTP, and the path with its query.
    body : mapping, optional
        Object that is sent.
    content_type : str
        Of the body.
    is_text : bool
        The answer is text, {"text": ...}.
    patience_s : float
        Seconds for the answer.
    """

    method: str
    path: str
    body: Object | None = None
    content_type: str = JSON
    is_text: bool = False
    patience_s: float = PATIENCE_S


class Api(Protocol):
    """An API server."""

    def send(self, request: Request) -> Json:
        """Send a request and return the object of the answer.

        Raises
        ------
        Refused
            If the answer is an error of the request.
        ClusterUnreachable
            If there is no answer, or one that says that the server is not well.
        """
        ...


@dataclass(frozen=True)
class Resource:
    """How a kind is called in paths.

    Parameters
    ----------
    group, version : str
        API group, "" for the core; version "" means the one that the server prefers.
    plural : str
        Name in paths.
    is_namespaced : bool
        Its objects are in namespaces.
    """

    group: str
    version: str
    plural: str
    is_namespaced: bool = True


KUEUE = "kueue.x-k8s.io"
RESOURCES: Mapping[str, Resource] = {
    "Node": Resource("", "v1", "nodes", False),
    "Pod": Resource("", "v1", "pods"),
    "ResourceQuota": Resource("", "v1", "resourcequotas"),
    "Job": Resource("batch", "v1", "jobs"),
    "JobSet": Resource("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "PyTorchJob": Resource("kubeflow.org", "v1", "pytorchjobs"),
    "ClusterQueue": Resource(KUEUE, "", "clusterqueues", False),
    "Cohort": Resource(KUEUE, "", "cohorts", False),
    "ResourceFlavor": Resource(KUEUE, "", "resourceflavors", False),
    "AdmissionCheck": Resource(KUEUE, "", "admissionchecks", False),
    "LocalQueue": Resource(KUEUE, "", "localqueues"),
    "Workload": Resource(KUEUE, "", "workloads"),
}

OPTIONAL = ("jobsets", "pytorchjobs", "cohorts")  # not every cluster knows these kinds


def path_of(resource: Resource, namespace: str = "", name: str = "", **query: str) -> str:
    """Return the path of objects.

    Examples
    --------
    >>> path_of(RESOURCES["Job"], "ml", "a", fieldManager="me")
    '/apis/batch/v1/namespaces/ml/jobs/a?fieldManager=me'
    """
    parts = ["apis", resource.group, resource.version] if resource.group else ["api", "v1"]
    if resource.is_namespaced and namespace:
        parts += ["namespaces", namespace]
    parts += [resource.plural, *([name] if name else [])]
    return "/" + "/".join(parts) + (f"?{urlencode(query)}" if query else "")


@dataclass
class Reader:
    """Lists of an API server.

    Parameters
    ----------
    api : Api
        The server.
    namespaces : sequence of str
        Namespaces to look at; empty: all.
    """

    api: Api
    namespaces: Sequence[str] = ()
    _versions: dict[str, str] = field(default_factory=dict)

    def resource(self, kind: str) -> Resource | None:
        """Return how a kind is called, or None if the server does not know its group."""
        known = RESOURCES[kind]
        if known.version:
            return known
        if known.group not in self._versions:
            try:
                group = self.api.send(Request("GET", f"/apis/{known.group}"))
            except Refused as refused:
                if refused.status != 404:
                    raise
                return None
            try:
                self._versions[known.group] = str(group["preferredVersion"]["version"])
            except (KeyError, TypeError) as error:
                raise ClusterUnreachable(f"/apis/{known.group}: the answer is no group") from error
        return replace(known, version=self._versions[known.group])

    def list_kind(self, kind: str, **query: str) -> list[Object]:
        """Return all objects of a kind; none if the server does not know the kind, or its group.

        Raises Refused for a kind that every server knows, or all that know its group.
        """
        resource = self.resource(kind)
        if resource is None:
            return []
        spaces = self.namespaces if resource.is_namespaced and kind != "Pod" else ()
        version = f"{resource.group}/{resource.version}".lstrip("/")
        return [
            {"kind": kind, "apiVersion": version, **item}
            for space in spaces or ("",)
            for item in self._pages(resource, space, query)
        ]

    def _pages(self, resource: Resource, space: str, query: Mapping[str, str]) -> Iterator[Json]:
        """Yield the objects of all pages; a list that became too old is begun again, once."""
        for is_last_try in (False, True):
            items: list[Json] = []
            more: dict[str, str] = {}
            try:
                while True:
                    path = path_of(resource, space, **query, limit=str(PAGE), **more)
                    answer = self.api.send(Request("GET", path))
                    if "items" not in answer:  # no list is not an empty list
                        raise ClusterUnreachable(f"{resource.plural}: the answer is no list")
                    items += answer["items"] or ()
                    token = (answer.get("metadata") or {}).get("continue")
                    if not token:
                        yield from items
                        return
                    more = {"continue": token}
            except Refused as refused:
                if refused.status == 404 and resource.plural in OPTIONAL:
                    return
                if refused.status != 410 or is_last_try:
                    raise
        raise ClusterUnreachable(f"{resource.plural}: the list could not be read")

    def read_everything(self) -> list[Object]:
        """Return the objects of all kinds that the allocator looks at."""
        return [value for kind in RESOURCES for value in self.list_kind(kind)]


MOST_TEXT = 1 << 20  # bytes of an answer that is text


class ClientApi:
    """An API server that the official client is configured for.

    Parameters
    ----------
    context : str, optional
        Context of the kubeconfig; None: the current one, or the service account of the pod in which
        this runs.
    kubeconfig : str, optional
        File; None: as kubectl finds it.

    Attributes
    ----------
    notes : tuple of str
        What the user has to know of the connection.

    Raises
    ------
    UsageError
        If the client is not installed, or there is no such context.
    """

    def __init__(self, context: str | None = None, kubeconfig: str | None = None) -> None:
        try:
            import urllib3
            from kubernetes import client, config
        except ImportError as error:
            raise UsageError(
                "the official client of Kubernetes is not installed: "
                + install_command("kubernetes")
            ) from error
        configuration = client.Configuration()
        try:
            # the client reads the variable only once, when it is imported
            place = kubeconfig or os.environ.get("KUBECONFIG") or None
            config.load_kube_config(place, context, configuration)
        except (config.ConfigException, OSError) as error:
            if context is not None or kubeconfig is not None:
                raise UsageError(f"the kubeconfig cannot be used: {error}") from error
            try:
                config.load_incluster_config(configuration)
            except config.ConfigException:
                raise UsageError(
                    f"there is no kubeconfig, and this is no pod of a cluster: {error}"
                ) from error
        self.notes: tuple[str, ...] = ()
        if configuration.host.startswith("https:") and not configuration.verify_ssl:
            # urllib3 would say so at each request
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            self.notes = (
                f"{configuration.host}: its certificate is not checked, as the kubeconfig says",
            )
        self._configuration = configuration
        self._connections = client.ApiClient(configuration).rest_client.pool_manager

    def send(self, request: Request) -> Json:
        """Send a request and return the object of the answer."""
        import urllib3

        wanted = "*/*" if request.is_text else "application/json"
        headers = {"Accept": wanted, "Content-Type": request.content_type}
        for setting in self._configuration.auth_settings().values():
            if setting["value"]:
                headers[setting["key"]] = setting["value"]
        try:
            answer = self._connections.request(
                request.method,
                self._configuration.host + request.path,
                body=None if request.body is None else json.dumps(request.body),
                headers=headers,
                timeout=urllib3.Timeout(total=request.patience_s),
                retries=False,
                preload_content=not request.is_text,
            )
            data = _read_text(answer, request.patience_s) if request.is_text else answer.data
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterUnreachable(
                f"{self._configuration.host} does not answer: {error}"
            ) from error
        return read_answer(answer.status, data, request)


def _read_text(answer: Any, patience_s: float) -> bytes:
    """Return the beginning of a text, of which a pod decides how much and how fast it comes."""
    until = time.monotonic() + patience_s
    text = b""
    while len(text) < MOST_TEXT and time.monotonic() < until:
        part = answer.read1(1 << 16)
        if not part:
            answer.release_conn()
            return text
        text += part
    answer.close()
    return text


def read_answer(status: int, data: bytes, request: Request) -> Json:
    """Return the object of an answer.

    Raises
    ------
    Refused
        If the status is an error of the request.
    ClusterUnreachable
        If the server is not well, or the answer is no object.
    """
    if request.is_text and status < 300:
        return {"text": data.decode("utf-8", "replace")}
    try:
        answer = json.loads(data or b"{}")
    except ValueError:
        answer = None
    place = f"{request.method} {request.path.partition('?')[0]}"
    if isinstance(answer, dict) and status < 300:
        return answer
    message = answer.get("message") if isinstance(answer, dict) else None
    # a pod may refuse a request that the API server passed on to it
    is_of_pod = request.is_text and message is None
    if 400 <= status < 500 and status != 429 and not is_of_pod:
        hint = "; allocator rbac prints what is needed" if status == 403 else ""
        raise Refused(status, f"{place}: {status} {message or 'refused'}{hint}")
    raise ClusterUnreachable(f"{place}: {status} {message or 'no answer that makes sense'}")


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"  # every account may ask
OPTIONAL_RIGHT = "pods/proxy"  # for jobs with a metrics URL


def read_role(use: str) -> str:
    """Return what `allocator rbac` prints."""
    place = files("allocator.clusters.kubernetes") / "rbac" / f"{use}.yaml"
    return place.read_text(encoding="utf-8")


def list_rights(use: str) -> Iterator[tuple[bool, str, str, str]]:
    """Yield the rights of a use: in its namespace only, verb, API group, resource."""
    import yaml

    for n, role in enumerate(yaml.safe_load_all(read_role(use))):
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from ((n > 0, verb, group, resource) for verb in rule["verbs"])


def find_missing_rights(api: Api, use: str, namespace: str) -> list[str]:
    """Return the rights of a use that the account has not, as "delete jobs.batch in ml".

    Raises
    ------
    ClusterUnreachable, Refused
        If the server does not tell.
    """
    missing = []
    for is_inside, verb, group, resource in list_rights(use):
        plural, _, part = resource.partition("/")
        asked = {"verb": verb, "group": group, "resource": plural, "subresource": part}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**asked, "namespace": namespace if is_inside else ""}},
        }
        answer = api.send(Request("POST", REVIEWS, body))
        if not answer.get("status", {}).get("allowed", True) and resource != OPTIONAL_RIGHT:
            place = f"in {namespace}" if is_inside else "in the cluster"
            missing.append(f"{verb} {resource}{f'.{group}' if group else ''} {place}")
    return missing
