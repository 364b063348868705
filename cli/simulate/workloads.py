"""Workloads as the pods that their controllers would create: Deployment, StatefulSet, Job and their like."""

from collections.abc import Iterator, Sequence
from typing import Any

Object = dict[str, Any]

REPLICATED = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
KINDS = ("Pod", *REPLICATED, "DaemonSet", "Job", "CronJob")
"""Kinds that stand for pods."""


def pods_of(workload: Object, nodes: Sequence[str]) -> Iterator[Object]:
    """Yields the pods of a workload, as objects; a pod yields itself.

    A Job has as many pods as run at once, a CronJob those of one run, and a DaemonSet one for each node.

    Args:
        nodes: names of all nodes.
    """
    kind, spec = workload["kind"], workload.get("spec") or {}
    if kind == "Pod":
        yield workload
    elif kind == "CronJob":
        job = spec.get("jobTemplate") or {}
        yield from pods_of({**job, "kind": "Job", "metadata": workload.get("metadata") or {}}, nodes)
    elif kind == "DaemonSet":
        for number, node in enumerate(nodes):
            yield _pod(workload, number, _only_on(node))
    else:
        for number in range(_replicas(kind, spec)):
            yield _pod(workload, number, {})


def _replicas(kind: str, spec: Object) -> int:
    if kind != "Job":
        return _number(spec, "replicas", 1)
    parallel = _number(spec, "parallelism", 1)
    return min(parallel, _number(spec, "completions", parallel))


def _number(spec: Object, field: str, default: int) -> int:
    given = spec.get(field)
    if given is None:
        return default
    try:
        return int(given)
    except (TypeError, ValueError):
        raise ValueError(f"spec.{field} is {given!r}; give a whole number") from None


def _pod(workload: Object, number: int, more: Object) -> Object:
    template = (workload.get("spec") or {}).get("template") or {}
    owner = workload.get("metadata") or {}
    metadata = {
        **(template.get("metadata") or {}),
        "name": f"{owner.get('name', workload['kind'].lower())}-{number}",
        "namespace": owner.get("namespace") or "default",
    }
    return {"kind": "Pod", "metadata": metadata, "spec": {**(template.get("spec") or {}), **more}}


def _only_on(node: str) -> Object:
    """Returns the affinity that the DaemonSet controller gives a pod, in place of the template's own for nodes."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}
