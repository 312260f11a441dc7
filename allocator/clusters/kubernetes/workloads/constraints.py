"""Which nodes the template of a pod admits: node selector, node affinity, tolerations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from allocator.clusters.kubernetes.objects import HOSTNAME, Object, field
from allocator.objects import Json

# What the state of a node says already; a job need not tolerate them.
HEALTH = "node.kubernetes.io/"
FORBIDDING = ("NoSchedule", "NoExecute")
_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, wanted: value in wanted,
    "NotIn": lambda value, wanted: value not in wanted,
    "Exists": lambda value, wanted: value is not None,
    "DoesNotExist": lambda value, wanted: value is None,
    "Gt": lambda value, wanted: value is not None and int(value) > int(wanted[0]),
    "Lt": lambda value, wanted: value is not None and int(value) < int(wanted[0]),
}


def node_terms(pod: Object) -> list[Object]:
    """Return the required terms of the node affinity of a pod, of which one has to hold."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return list(field(pod, "affinity", "nodeAffinity", required, "nodeSelectorTerms") or ())


def unpinned_terms(pod: Object, pinned: Iterable[str]) -> list[Json]:
    """Return the terms of the affinity without the hostnames that the allocator itself asked for.

    Examples
    --------
    >>> unpinned_terms(pinned_affinity({}, ["n1"]), ["n1"])
    []
    """
    ours = {"key": HOSTNAME, "operator": "In", "values": sorted(pinned)}
    terms = []
    for term in node_terms(pod):
        left = [
            expression for expression in term.get("matchExpressions") or () if expression != ours
        ]
        rest = {name: value for name, value in term.items() if name != "matchExpressions"}
        if left or rest:
            terms.append({**rest, **({"matchExpressions": left} if left else {})})
    return terms


def pinned_affinity(pod: Object, hostnames: Iterable[str]) -> Json:
    """Return the affinity of a pod that may run on these hostnames only, as a part of its spec.

    Terms that it has already keep holding: each of them asks for the hostnames, too.

    Examples
    --------
    >>> term = node_terms(pinned_affinity({}, ["n2", "n1"]))[0]
    >>> term["matchExpressions"][0]["values"]
    ['n1', 'n2']
    """
    pin = {"key": HOSTNAME, "operator": "In", "values": sorted(hostnames)}
    terms = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), pin]}
        for term in node_terms(pod) or [{}]
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def placement_rules(pod: Object, pinned: Iterable[str] = ()) -> str:
    """Return what a pod asks of nodes, as text: equal texts admit the same nodes."""
    rules = {
        "selector": field(pod, "nodeSelector") or {},
        "terms": unpinned_terms(pod, pinned),
        "tolerations": field(pod, "tolerations") or (),
    }
    return json.dumps(rules, sort_keys=True)


def admits(
    rules: str, labels: Mapping[str, str], name: str, taints: Sequence[Object], resource: str
) -> bool:
    """Return whether the rules of a pod admit a node.

    A taint whose key is the GPU resource itself is tolerated: an API server with the plugin
    ExtendedResourceToleration adds that toleration.

    Parameters
    ----------
    rules : str
        Of `placement_rules`.
    labels : mapping of str to str
        Labels of the node.
    name : str
        Name of the node.
    taints : sequence of mapping
        Taints of the node.
    resource : str
        GPU resource that the pod asks for.

    Examples
    --------
    >>> rules = placement_rules({"nodeSelector": {"zone": "a"}})
    >>> admits(rules, {"zone": "a"}, "n1", [], "nvidia.com/gpu")
    True
    """
    asked = json.loads(rules)
    return (
        all(labels.get(key) == value for key, value in asked["selector"].items())
        and (not asked["terms"] or any(_holds(term, labels, name) for term in asked["terms"]))
        and all(_tolerates(asked["tolerations"], taint, resource) for taint in taints)
    )


def _holds(term: Object, labels: Mapping[str, str], name: str) -> bool:
    asked = [
        (expression, labels.get(expression["key"]))
        for expression in term.get("matchExpressions") or ()
    ]
    asked += [(expression, name) for expression in term.get("matchFields") or ()]
    return all(
        _OPERATORS[expression["operator"]](value, expression.get("values") or ())
        for expression, value in asked
    )


def _tolerates(tolerations: Sequence[Object], taint: Object, resource: str) -> bool:
    key = str(taint["key"])
    effect = taint.get("effect")
    if effect not in FORBIDDING or key.startswith(HEALTH) or key == resource:
        return True
    return any(
        toleration.get("effect") in (None, "", effect)
        and (
            (toleration.get("operator") == "Exists" and toleration.get("key") in (None, "", key))
            or (
                toleration.get("key") == key
                and toleration.get("value", "") == taint.get("value", "")
            )
        )
        for toleration in tolerations
    )
