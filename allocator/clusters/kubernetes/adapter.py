"""The adapter `kubernetes`: where its objects come from, and which files carry a plan out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from allocator.clusters.adapter import ClusterView, ObserveRequest, PlannedJob
from allocator.clusters.kubernetes.api import ClientApi, Reader
from allocator.clusters.kubernetes.objects import Object, Objects, expand_lists, newest_time
from allocator.clusters.kubernetes.observe import observe, observe_cluster
from allocator.clusters.kubernetes.suggestions.suggest import suggest
from allocator.errors import UsageError

SETTINGS = ("context", "kubeconfig", "namespaces")


class KubernetesCluster:
    """A cluster of Kubernetes, with Kueue or without."""

    def observe(self, request: ObserveRequest) -> ClusterView:
        """Look at the cluster, or at recorded answers of `kubectl get -o json`.

        Raises
        ------
        UsageError
            For settings that make no sense.
        ClusterUnreachable
            If the cluster does not answer.
        """
        unknown = sorted(set(request.settings) - set(SETTINGS))
        if unknown:
            raise UsageError(
                f'the setting "{unknown[0]}" is not known; there are {", ".join(SETTINGS)}'
            )
        if request.answers is not None:
            objects = list(read_answers(request.answers))
            return observe(Objects(objects), newest_time(objects))
        api = ClientApi(request.settings.get("context"), request.settings.get("kubeconfig"))
        reader = Reader(api, request.settings.get("namespaces", ()))
        view = observe_cluster(reader, time.time())
        return replace(view, notes=(*api.notes, *view.notes))

    def commands(self, jobs: Sequence[PlannedJob], details: Object) -> Mapping[str, str]:
        """Return the documents that carry a plan out, by name, in their order."""
        return suggest(jobs, details)


def read_answers(place: Path) -> Iterator[Object]:
    """Yield the objects of a file of JSON, or of all of them in a folder.

    Raises
    ------
    UsageError
        If there is no such file, or it is none of `kubectl get -o json`.
    """
    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not files:
        raise UsageError(f'"{place}" holds no file *.json')
    for file in files:
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f'"{file}" cannot be read: {error}') from error
        if not isinstance(document, dict) or "kind" not in document:
            raise UsageError(f'"{file}" is no object of Kubernetes')
        yield from expand_lists(document)
