"""The capacity that Reservations and members of NonStrict gangs hold, by the log and by the API server."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from cli.dev.fault_simulation.memory_api import ApiServer, Body, key_of
from cli.dev.fault_simulation.memory_log import Row
from shared.events.cluster import DesiredStateRejected
from shared.events.scheduling import PlacementReleased, PlacementReserved, PodPlaced
from shared.kube import resource_names
from shared.kube.quantity import nanos
from shared.kube.system_annotations import RESERVATION_ALLOCATED

_RESERVED, _RELEASED, _REJECTED, _PLACED = (
    kind.type_name() for kind in (PlacementReserved, PlacementReleased, DesiredStateRejected, PodPlaced)
)
ENDED = ("Succeeded", "Failed")
KINDS = ("cpu", "memory")


class _Fields(msgspec.Struct):
    holder_uid: str = ""
    pod_uid: str = ""
    node: str = ""
    resource: str = ""
    name: str = ""


class _Used(msgspec.Struct):
    uid: str = ""


class Held(NamedTuple):
    """The part of a Reservation that its owners do not use, or what a pod without a node holds.

    Attributes:
        name: of the Reservation, or `namespace/name` of the pod.
        once: the first pod that uses it ends it.
        owners: the number of pods on its node that use it.
        left: resource -> nanos.
    """

    name: str
    node: str
    once: bool
    owners: int
    left: Mapping[str, int]


class HeldCapacity:
    """The holders of capacity: Reservations, placed by the log, or on a node by the API server, and pods that the log
    places without a binding.

    A pod's hold ends when the log releases or places it, and with the pod. A Reservation ends when the log releases it,
    when its status says so, or when it is deleted. Until its status has a node, a rejection of the status ends it too.
    """

    def __init__(self, api: ApiServer, live_pods: Callable[[], list[Body]], check_node: Callable[[str], None]) -> None:
        self._api = api
        self._live_pods = live_pods
        self._check_node = check_node
        self._nodes: dict[str, str] = {}  # uid -> node, by the log

    def appended(self, rows: list[Row]) -> None:
        """Notes what a commit places and releases, and checks the nodes on which it places."""
        nodes: dict[str, None] = {}
        for row in rows:
            if row.type not in (_RESERVED, _RELEASED, _REJECTED, _PLACED):
                continue
            fields = msgspec.json.decode(row.data, type=_Fields)
            if row.type == _RESERVED:
                self._nodes[fields.holder_uid] = fields.node
                nodes[fields.node] = None
            elif row.type == _PLACED:
                self._nodes.pop(fields.pod_uid, None)
            elif row.type == _RELEASED:
                self._nodes[fields.holder_uid] = ""
            elif (there := self._reservations().get(fields.name)) and fields.resource == resource_names.RESERVATIONS:
                self._nodes.pop(there["metadata"]["uid"], None)
        for node in nodes:
            self._check_node(node)

    def changed(self, after: Body) -> None:
        """Checks the node on which a Reservation holds capacity."""
        if after.get("status", {}).get("nodeName") and after["status"].get("phase") not in ENDED:
            self._check_node(after["status"]["nodeName"])

    def on(self, node: str) -> list[Held]:
        """Returns what Reservations hold on a node."""
        return [held for held in self._all() if held.node == node]

    def holding_pods(self) -> list[Body]:
        """Returns the pods without a node for which one is held."""
        pods = (pod for pod in self._live_pods() if not pod["spec"].get("nodeName"))
        return [pod for pod in pods if self._nodes.get(pod["metadata"]["uid"])]

    def _all(self) -> Iterator[Held]:
        pods = self._live_pods()
        for name, body in sorted(self._reservations().items()):
            uid, status = body["metadata"]["uid"], body.get("status", {})
            node = (
                self._nodes.get(uid) if self._nodes.get(uid) == "" else status.get("nodeName") or self._nodes.get(uid)
            )
            if not node or status.get("phase") in ENDED:
                continue
            amounts = body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
            users = [pod for pod in pods if pod["spec"].get("nodeName") == node and used_by(pod) == uid]
            left = {kind: max(0, nanos(amounts[kind]) - sum(requested(pod, kind) for pod in users)) for kind in KINDS}
            yield Held(name, node, body["spec"]["allocateOnce"], len(users), left)
        for pod in self.holding_pods():
            left = {kind: requested(pod, kind) for kind in KINDS}
            yield Held(key_of(pod["metadata"]), self._nodes[pod["metadata"]["uid"]], once=True, owners=0, left=left)

    def _reservations(self) -> dict[str, Body]:
        return self._api.objects[resource_names.RESERVATIONS]


def used_by(pod: Body) -> str:
    """Returns the uid of the Reservation that a pod uses; empty for none."""
    text = pod["metadata"].get("annotations", {}).get(RESERVATION_ALLOCATED)
    return msgspec.json.decode(text, type=_Used).uid if text else ""


def requested(pod: Body, kind: str) -> int:
    """Returns a pod's request in nanos."""
    return sum(
        nanos(container["resources"]["requests"].get(kind, "0"))
        for container in pod["spec"]["containers"]
        if container.get("resources")
    )
