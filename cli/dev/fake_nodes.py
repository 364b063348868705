"""Nodes without a kubelet: objects that a scheduler takes for real ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from cli.dev.kube_client import Api, ApiRefused, Object

CAPACITY = {"cpu": "32", "memory": "256Gi", "pods": "110"}
CONNECTIONS = 8

Item = TypeVar("Item")


def node_object(
    name: str,
    *,
    capacity: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A Node that is Ready.

    Args:
        name: also its hostname label.
        capacity: resource name -> quantity, over 32 cores, 256Gi and 110 pods; extended resources too.
        allocatable: over `capacity`.
        labels: over the ones that a kubelet sets.
        annotations: as they are.
    """
    total = CAPACITY | dict(capacity or {})
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    standard = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": standard | dict(labels or {}), "annotations": dict(annotations or {})},
        "status": {
            "capacity": total,
            "allocatable": total | dict(allocatable or {}),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", **times}],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def create_nodes(api: Api, nodes: Iterable[Object], *, taints: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """Creates nodes over a few connections; returns their names, in order.

    Admission taints every new node `not-ready`, which a node controller would take away; none runs, so a patch does.

    Args:
        api: of an administrator.
        nodes: from `node_object`. Their status is taken over at creation, as a kubelet's is at registration.
        taints: what each node has in the end.
    """
    objects = list(nodes)
    spec = {"spec": {"taints": [dict(taint) for taint in taints] or None}}

    def create(share: list[Object]) -> None:
        with api.session() as session:
            for node in share:
                session.call("POST", "/api/v1/nodes", node)
                session.call("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", spec)

    _spread(create, objects)
    return [str(node["metadata"]["name"]) for node in objects]


def delete_nodes(api: Api, names: Iterable[str]) -> None:
    """Deletes nodes; one that is gone already is fine."""

    def delete(share: list[str]) -> None:
        with api.session() as session:
            for name in share:
                try:
                    session.call("DELETE", f"/api/v1/nodes/{name}")
                except ApiRefused as error:
                    if error.reason != "NotFound":
                        raise

    _spread(delete, list(names))


def _spread(work: Callable[[list[Item]], None], items: list[Item]) -> None:
    shares = [share for start in range(CONNECTIONS) if (share := items[start::CONNECTIONS])]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(work, shares))
