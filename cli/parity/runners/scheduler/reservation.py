"""The `reservation` cases: pods and reserve pods against nodes with Reservations.

Nodes, Reservations and pods are events; the plugin's filter and scores are the fused evaluation's, the Reservation that
a pod uses is that of the cycle that tries it, and corrected nodes are the snapshot's while the pod's class is in focus.
The profile has no other plugin.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.runners.scheduler.pod_with_reservations import SUCCESS, PodWithReservations, requested, status
from cli.parity.runners.scheduler.recorded_cluster import Cluster
from services.scheduler.plugins.reservation.plugin import ReservationPlugin
from services.scheduler.plugins.reservation.reservation_affinity import wish_of
from services.scheduler.plugins.reservation.reservations_a_pod_may_use import (
    decision,
    is_owner,
    untolerated_taint,
)
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.domain.reservation import RESERVATION_PLACEMENT, problem_of, read_reservation, reserve_pod
from shared.events.cluster import ObjectObserved
from shared.kube.pod import Pod

NAME = "Reservation"

Json = Mapping[str, Any]


def answer(op: str, given: Json) -> dict[str, Any]:
    """Answers one case in the shape of its output."""
    if op == "match":
        return _match(given)
    cluster = ReservationCluster(given)
    return cluster.cycle(given) if op == "cycle" else cluster.reserve_pod(given)


class ReservationCluster(Cluster):
    """Nodes with Reservations and pods."""

    def __init__(self, given: Json) -> None:
        super().__init__((NAME,), {NAME: given.get("args", {})})
        for raw in given["nodes"]:
            self.observe_node(raw)
        for raw in given["reservations"]:
            self.observe_reservation(raw)
        for pod in msgspec.convert(given["runningPods"], list[Pod]):
            self.observe_pod(pod)
        for raw in given["reservations"] if given.get("refreshed") else ():
            self.observe_reservation(raw)
        plugin = self.plugins[NAME]
        assert isinstance(plugin, ReservationPlugin), "the registry has one plugin of a name"
        self.plugin = plugin
        self.nodes = [raw["metadata"]["name"] for raw in given["nodes"]]

    def observe_reservation(self, raw: Json) -> None:
        """Observes a Reservation that came or changed."""
        metadata = raw["metadata"]
        self.observe(
            ObjectObserved(resource=RESERVATIONS, name=metadata["name"], uid=metadata["uid"], object=dict(raw))
        )

    def cycle(self, given: Json) -> dict[str, Any]:
        """Tries a pod."""
        with self.waiting(given["pod"]) as tried:
            pod = PodWithReservations(self.engine.cache, self.profile, self.plugin, tried, self.nodes)
            return pod.answer(given.get("removedPods") or ())

    def reserve_pod(self, given: Json) -> dict[str, Any]:
        """Tries a Reservation that has no node yet."""
        raw = given["newReservation"]
        reservation = read_reservation(raw)
        found: dict[str, Any] = {"reservePod": _shown(reservation.metadata.name, reserve_pod(reservation))}
        if problem := problem_of(reservation):
            return found | {"preFilter": {"code": "Error", "reasons": [problem]}}
        self.observe_reservation(raw)
        self.engine.cache.settle()
        record = self.engine.view.pods[reservation.metadata.uid]
        assert record.pod_class is not None, "read when the cache was settled"
        evaluation = self.evaluate(record.pod_class)
        refusals = evaluation.refusals(self.plugin)
        rows, snapshot = self.engine.cache.table.rows, evaluation.transaction.snapshot
        nodes = {
            node: {"filter": status(refusals.get(node)), "requested": requested(snapshot, rows[node])}
            for node in self.nodes
        }
        return found | {"preFilter": SUCCESS, "nodes": nodes}


def _match(given: Json) -> dict[str, Any]:
    cluster = ReservationCluster({"nodes": [given["node"]], "reservations": [given["reservation"]], "runningPods": ()})
    holds = cluster.engine.cache.cluster_objects.reservations
    with cluster.waiting(given["pod"]) as tried:
        capacity = holds.capacities[given["reservation"]["metadata"]["uid"]]
        pod_class, wish = tried.evaluation.pod_class, wish_of(tried.evaluation.pod_class)
        found: dict[str, Any] = {"ownersValid": capacity.is_usable, "resourceNames": list(capacity.restricted)}
        found["ownerMatched"] = is_owner(pod_class, capacity)
        if wish.problem:
            return found | {"affinityError": True}
        table, row = cluster.engine.cache.table, cluster.engine.cache.table.rows[given["node"]["metadata"]["name"]]
        decided = decision(pod_class, wish, capacity, table, row)
        found |= {"hasAffinity": wish.affinity is not None, "decision": decided}
        found["matched"] = decided in ("matched", "ignored")
        taint = untolerated_taint(wish, capacity) if decided == "taints" else None
        return found if taint is None else found | {"taints": {f"{{{taint.key}: {taint.value}}}": 1}}


def _shown(name: str, pod: Pod) -> dict[str, Any]:
    """Returns a reserve pod as upstream has it: the name of its Reservation and its node are annotations there."""
    annotations = dict(pod.metadata.annotations or {})
    _, _, node = annotations.pop(RESERVATION_PLACEMENT).partition("/")
    annotations["scheduling.koordinator.sh/reservation-name"] = name
    if node:
        annotations["scheduling.koordinator.sh/reservation-node"] = node
    found: dict[str, Any] = msgspec.to_builtins(pod)
    found["metadata"] = {**found["metadata"], "annotations": annotations}
    found["metadata"].pop("creationTimestamp", None)
    found.pop("status", None)
    found["spec"]["schedulerName"] = pod.spec.scheduler_name
    return found
