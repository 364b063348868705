"""The controller of the ReplicaSets: each has as many pods as it desires, whatever removes them.

Source: k8s.io/kubernetes/pkg/controller/replicaset: pods that have ended or are terminating do not count, and pods
without a node are removed first. The pods of a deleted ReplicaSet are deleted with it, as the garbage collector does.
"""

from collections.abc import Iterator
from typing import Any

from services.simulator.api.api_errors import ApiError
from services.simulator.api.api_transaction import ApiTransaction
from services.simulator.api.replica_set_admission import new_pod, replicas_of
from services.simulator.api.request_execution import suffix
from services.simulator.api.resource_kinds import PODS, REPLICA_SETS
from services.simulator.state import uid_of
from shared.kube.pod import ENDED_PHASES, Pod


def keep_replicas(api: ApiTransaction) -> None:
    """Creates and deletes pods of the ReplicaSets, if a pod or a ReplicaSet has changed in this step."""
    if not any(resource in (PODS.name, REPLICA_SETS.name) for resource, _ in api.changed):
        return
    gone = any(resource == REPLICA_SETS.name and new is None for (resource, _), new in api.changed.items())
    sets = dict(_sets(api))
    if not sets and not gone:
        return
    pods: dict[str, list[Pod]] = {}
    for pod in _controlled(api):
        pods.setdefault(pod.metadata.controller.uid if pod.metadata.controller else "", []).append(pod)
    for uid, body in sets.items():
        _keep(api, body, pods.pop(uid, []))
    if gone:
        for orphan in (pod for left in pods.values() for pod in left):
            api.end_pod(orphan)


def _sets(api: ApiTransaction) -> Iterator[tuple[str, dict[str, Any]]]:
    for key in api.keys(REPLICA_SETS.name):
        body = api.find(REPLICA_SETS.name, key)
        if isinstance(body, dict):
            yield uid_of(body), body


def _controlled(api: ApiTransaction) -> Iterator[Pod]:
    """Yields the pods that a ReplicaSet controls and that neither have ended nor terminate."""
    for key in api.keys(PODS.name):
        pod = api.pod(key)
        if pod is None or pod.metadata.deletion_timestamp or pod.status.phase in ENDED_PHASES:
            continue
        owner = pod.metadata.controller
        if owner is not None and (owner.api_version, owner.kind) == (REPLICA_SETS.api_version, REPLICA_SETS.kind):
            yield pod


def _keep(api: ApiTransaction, body: dict[str, Any], pods: list[Pod]) -> None:
    desired = replicas_of(body)
    newest_first = pods[::-1]  # sorting keeps that order among equals
    surplus = sorted(newest_first, key=lambda each: bool(each.spec.node_name))[: max(0, len(pods) - desired)]
    for pod in surplus:
        api.end_pod(pod)
    failure = ""
    for _ in range(desired - len(pods)):
        try:
            api.create(PODS, new_pod(body, f"{body['metadata']['name']}-{suffix(api.created)}"))
        except ApiError as error:
            # What the template needs, such as its PriorityClass, was deleted after the ReplicaSet was admitted.
            failure = str(error)
            break
    _write_failure(api, body, failure)


def _write_failure(api: ApiTransaction, body: dict[str, Any], failure: str) -> None:
    """Writes the condition ReplicaFailure, or removes it."""
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure}
    status = {"conditions": [condition]} if failure else {}
    if body.get("status", {}) != status:
        key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        api.put(REPLICA_SETS.name, key, {**body, "status": status})
