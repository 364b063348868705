"""The lock that a binding needs on its node, where a vendor's device plugin serves one pod at a time.

The write is conditional on the version of the node that was read, so of two bindings, of this or of another scheduler,
one takes the lock. Only the plugin removes it: also after a binding that failed the lock stays until it is stale or
its pod is gone, as upstream has it.
"""

from services.gateway.effects import outcome_events
from services.gateway.kube_api.api_errors import REFUSALS, WRITES_ON_CONFLICT, Ambiguous, Busy, Conflict
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import NODES, PODS
from shared.domain.node_lock import BadLock, lock_text, read_lock
from shared.events import Event
from shared.events.scheduling import PodPlaced
from shared.kube.node import Node


async def lock_node(api: KubeApi, intent: PodPlaced, *, now_ns: int) -> Event | None:
    """Sets the node's lock for the pod; returns the outcome of the placement where it cannot be set.

    Twice is harmless: a lock of the pod itself is set anew.

    Source: spec/scheduler-workloads.md 3.9.

    Raises:
        Busy: not set, and worth a retry.
        Forbidden: the account may not write nodes.
    """
    for _ in range(WRITES_ON_CONFLICT):
        seen = await api.find(NODES, intent.node)
        if seen is None or not isinstance(seen.object, Node):
            return outcome_events.rejected(intent, f"there is no node {intent.node}")
        text = (seen.object.metadata.annotations or {}).get(intent.node_lock)
        if text is not None and (reason := await _reason_to_keep(api, intent, text, now_ns)):
            return outcome_events.rejected(intent, reason)
        annotations = {intent.node_lock: lock_text(intent.pod, now_ns)}
        body = {"metadata": {"resourceVersion": seen.version, "annotations": annotations}}
        try:
            await api.patch(NODES, intent.node, body)
        except Conflict:
            continue
        except Ambiguous as error:
            raise Busy(str(error)) from error
        except REFUSALS as error:
            return outcome_events.rejected(intent, str(error))
        return None
    raise Busy(f"node {intent.node} is being written by others")


async def _reason_to_keep(api: KubeApi, intent: PodPlaced, text: str, now_ns: int) -> str:
    """Returns why the node's lock is not the pod's; empty where the pod may take it.

    Raises:
        ApiError: the pod that the lock names cannot be read.
    """
    try:
        lock = read_lock(text)
    except BadLock as error:
        return f"annotation {intent.node_lock} of node {intent.node}: {error}; remove it if no device plugin wrote it"
    if lock.pod == intent.pod or lock.is_stale(now_ns) or await api.find(PODS, lock.pod) is None:
        return ""
    return (
        f"node {intent.node} is locked for {lock.pod} ({intent.node_lock}) until its device plugin has served that pod,"
        " or for five minutes"
    )
