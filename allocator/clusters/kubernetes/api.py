"""Requests to an API server: what each kind is called there, lists in pages, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import urlencode

from allocator.clusters.adapter import ClusterUnreachable, Json, Refused
from allocator.clusters.kubernetes.objects import Object

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
                found = self.api.send(Request("GET", f"/apis/{known.group}"))
            except Refused as refused:
                if refused.status != 404:
                    raise
                return None
            try:
                self._versions[known.group] = str(found["preferredVersion"]["version"])
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
        return [one for kind in RESOURCES for one in self.list_kind(kind)]
