"""The capacity that Reservations, members of NonStrict gangs and pods without their volumes hold, by the log and by the
API server.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from cli.dev.fault_simulation.memory_api import ApiServer, Body, key_of
from cli.dev.fault_simulation.memory_log import Row
from cli.dev.fault_simulation.shares import Shares, shares_in
from shared.domain.reservation import RESTRICTED, pre_allocated_pods
from shared.events.cluster import DesiredStateRejected
from shared.events.scheduling import PlacementReleased, PlacementReserved, PodPlaced
from shared.kube import resource_names
from shared.kube.pod import ENDED_PHASES
from shared.kube.quantity import nanos
from shared.kube.system_annotations import RESERVATION_ALLOCATED

_RESERVED, _RELEASED, _REJECTED, _PLACED = (
    kind.type_name() for kind in (PlacementReserved, PlacementReleased, DesiredStateRejected, PodPlaced)
)
KINDS = ("cpu", "memory")


class _Fields(msgspec.Struct):
    holder_uid: str = ""
    pod_uid: str = ""
    node: str = ""
    resource: str = ""
    name: str = ""
    annotations: dict[str, str] = {}


class _Used(msgspec.Struct):
    uid: str = ""


class Held(NamedTuple):
    """The part of a Reservation that its owners do not use, or what a pod without a node holds.

    Attributes:
        name: of the Reservation, or `namespace/name` of the pod.
        once: the first pod that uses it ends it.
        owners: the number of pods on its node that use it.
        left: resource -> nanos.
        shares: the CPUs and amounts of NUMA nodes that its owners do not use.
        is_restricted: owners get the resources of the Reservation from it alone; None for a pod.
    """

    name: str
    node: str
    once: bool
    owners: int
    left: Mapping[str, int]
    shares: Shares
    is_restricted: bool | None = None


class HeldCapacity:
    """Follows which Reservations and pods hold capacity without being bound.

    A Reservation holds it once the log has placed it, or the API server has a node in its status: until the log
    releases it, its status has ended, or it is deleted; while its status has no node, also until that status is
    rejected. A pod holds it once the log has reserved a node for it: until the log releases or places it, or the pod
    is deleted.
    """

    def __init__(
        self,
        api: ApiServer,
        live_pods: Callable[[], list[Body]],
        shares_of: Callable[[str], Shares],
        check_node: Callable[[str], None],
        report: Callable[[str], None],
    ) -> None:
        """Prepares the comparison.

        Args:
            shares_of: returns what the binding of the pod with a uid gave it.
        """
        self._api = api
        self._live_pods = live_pods
        self._shares_of = shares_of
        self._check_node = check_node
        self._report = report
        self._nodes: dict[str, str] = {}  # uid -> node, by the log
        self._since_s: dict[str, float] = {}  # uid -> when its newest hold was committed; seconds of the world
        self._shares: dict[str, Shares] = {}  # uid -> what its newest placement gave it, by the log
        self._taken: dict[str, str] = {}  # uid of a running pod -> uid of the Reservation that took it over

    def appended(self, rows: list[Row]) -> None:
        """Notes what a commit places and releases, and checks the nodes on which it places."""
        nodes: dict[str, None] = {}
        for row in rows:
            if row.type not in (_RESERVED, _RELEASED, _REJECTED, _PLACED):
                continue
            fields = msgspec.json.decode(row.data, type=_Fields)
            if row.type == _RESERVED:
                self._nodes[fields.holder_uid] = fields.node
                self._since_s[fields.holder_uid] = asyncio.get_running_loop().time()
                self._shares[fields.holder_uid] = shares_in(fields.annotations)
                self._take_over(fields.holder_uid, fields.annotations)
                nodes[fields.node] = None
            elif row.type == _PLACED:
                self._nodes.pop(fields.pod_uid, None)
                self._taken.pop(fields.pod_uid, None)  # what an earlier placement was taken over for
            elif row.type == _RELEASED:
                self._nodes[fields.holder_uid] = ""
            elif (there := self._reservations().get(fields.name)) and fields.resource == resource_names.RESERVATIONS:
                self._nodes.pop(there["metadata"]["uid"], None)
        for node in nodes:
            self._check_node(node)

    def _take_over(self, uid: str, annotations: Mapping[str, str]) -> None:
        """Notes the pods that a Reservation takes over, and checks that no other has them."""
        for pod, name in pre_allocated_pods(annotations):
            before = self._taken.get(pod, uid)
            other = next((each for each in self._all_reservations() if each["metadata"]["uid"] == before), None)
            if before != uid and other is not None and self._node_of(other):
                self._report(f"{name} is taken over by a second Reservation; {other['metadata']['name']} has it")
            self._taken[pod] = uid

    def changed(self, after: Body) -> None:
        """Checks the node on which a Reservation holds capacity."""
        if after.get("status", {}).get("nodeName") and after["status"].get("phase") not in ENDED_PHASES:
            self._check_node(after["status"]["nodeName"])

    def on(self, node: str) -> list[Held]:
        """Returns what Reservations hold on a node."""
        return [held for held in self._all() if held.node == node]

    def holding_pods(self) -> list[Body]:
        """Returns the pods without a node for which one is held."""
        pods = (pod for pod in self._live_pods() if not pod["spec"].get("nodeName"))
        return [pod for pod in pods if self._nodes.get(pod["metadata"]["uid"])]

    def since_s(self, pod: Body) -> float:
        """Returns when the node was placed that is held for a pod; seconds of the world."""
        return self._since_s[pod["metadata"]["uid"]]

    def _all(self) -> Iterator[Held]:
        pods = self._live_pods()
        for body in self._all_reservations():
            node = self._node_of(body)
            if not node:
                continue
            spec, uid = body["spec"], body["metadata"]["uid"]
            amounts = spec["template"]["spec"]["containers"][0]["resources"]["requests"]
            users = [pod for pod in pods if pod["spec"].get("nodeName") == node and self._user_of(pod) == uid]
            left = {
                kind: max(0, nanos(amounts.get(kind, "0")) - sum(requested(pod, kind) for pod in users))
                for kind in KINDS
            }
            shares = Shares(self._shares.get(uid, {}))
            for pod in users:
                shares.subtract(self._shares_of(pod["metadata"]["uid"]))
            is_restricted = spec.get("allocatePolicy") == RESTRICTED
            yield Held(body["metadata"]["name"], node, spec["allocateOnce"], len(users), left, +shares, is_restricted)
        for pod in self.holding_pods():
            uid, left = pod["metadata"]["uid"], {kind: requested(pod, kind) for kind in KINDS}
            shares = self._shares.get(uid, Shares())
            yield Held(key_of(pod["metadata"]), self._nodes[uid], once=True, owners=0, left=left, shares=shares)

    def _node_of(self, body: Body) -> str:
        """Returns the node on which a Reservation holds capacity; empty for none."""
        placed, status = self._nodes.get(body["metadata"]["uid"]), body.get("status", {})
        if placed == "" or status.get("phase") in ENDED_PHASES:
            return ""
        return status.get("nodeName") or placed or ""

    def _user_of(self, pod: Body) -> str:
        return self._taken.get(pod["metadata"]["uid"]) or used_by(pod)

    def _all_reservations(self) -> list[Body]:
        return [body for _, body in sorted(self._reservations().items())]

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
