"""Whether an account has the rights of a printed role."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from allocator.clusters.kubernetes.api import Api, Request

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"  # every account may ask
OPTIONAL = "pods/proxy"  # for jobs with a metrics URL


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
        if not answer.get("status", {}).get("allowed", True) and resource != OPTIONAL:
            place = f"in {namespace}" if is_inside else "in the cluster"
            missing.append(f"{verb} {resource}{f'.{group}' if group else ''} {place}")
    return missing
