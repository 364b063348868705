"""The status of pods on nodes without a kubelet: bound ones run, deleted ones end. No container is started.

Without it a bound pod would be Pending for ever, and `kubectl delete` would wait for a kubelet that confirms the end.
"""

import http.client
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from cli.dev.kube_client import Api, ApiRefused, Object, Session

PODS = "/api/v1/pods"
_WATCH_S = 300
_RETRY_S = 0.5
_READY = ("Initialized", "ContainersReady", "Ready")
_BOUND = "fieldSelector=spec.nodeName%21%3D"
_GONE = frozenset({"NotFound", "Conflict"})
"""Refusals of a change to a pod that has meanwhile ended or has been replaced by one of the same name."""


class FakeKubelets:
    """Follows the bound pods of a cluster in a thread of its own, which ends with the process or at `stop`.

    Nodes that report a kubelet's version are left to their kubelet.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-kubelets", daemon=True)

    def start(self) -> None:
        """Begins to follow the pods."""
        self._thread.start()

    def stop(self) -> None:
        """Ends at the next pod, or with the process."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with self._api.session(timeout_s=_WATCH_S + 30) as watch, self._api.session() as changes:
                    for pod in _bound_pods(watch):
                        if self._ended.is_set():
                            return
                        _advance(changes, pod)
            except (OSError, http.client.HTTPException, ApiRefused):
                # The API server was stopped or restarted, or the version of the list has expired: list again.
                self._ended.wait(_RETRY_S)


def change_of(pod: Mapping[str, Any], now: datetime) -> Object | None:
    """Returns the next change of a bound pod: the patch of its status, an empty one for its removal, None without one."""
    if pod["metadata"].get("deletionTimestamp"):
        return {}
    if pod.get("status", {}).get("phase") != "Pending":
        return None
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    containers = [
        {
            "name": each["name"],
            "image": each.get("image", ""),
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": at}},
        }
        for each in pod["spec"]["containers"]
    ]
    conditions = [{"type": type_, "status": "True", "lastTransitionTime": at} for type_ in _READY]
    return {"status": {"phase": "Running", "startTime": at, "conditions": conditions, "containerStatuses": containers}}


def _bound_pods(session: Session) -> Iterator[Object]:
    """Yields the bound pods, then each that changes, until the watch ends."""
    found = session.call("GET", f"{PODS}?{_BOUND}")
    yield from found["items"]
    version = found["metadata"]["resourceVersion"]
    query = f"watch=1&resourceVersion={version}&timeoutSeconds={_WATCH_S}"
    for event in session.lines(f"{PODS}?{_BOUND}&{query}"):
        if event["type"] in ("ADDED", "MODIFIED"):
            yield event["object"]
        elif event["type"] == "ERROR":
            return


def _advance(session: Session, pod: Object) -> None:
    change = change_of(pod, datetime.now(UTC))
    if change is None or _has_kubelet(session, pod["spec"]["nodeName"]):
        return
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    try:
        if change:
            session.call("PATCH", f"{path}/status", change | {"metadata": {"uid": metadata["uid"]}}, patch="strategic")
        else:
            session.call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
    except ApiRefused as error:
        if error.reason not in _GONE:
            raise


def _has_kubelet(session: Session, node: str) -> bool:
    """Reports whether a node has registered a kubelet; False for a node that does not exist."""
    try:
        found = session.call("GET", f"/api/v1/nodes/{node}")
    except ApiRefused as error:
        if error.reason != "NotFound":
            raise
        return False
    return bool(found["status"].get("nodeInfo", {}).get("kubeletVersion"))
