"""The model's answers to recorded cases, in the shape of their outputs."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.upstream.reservation.filtering import NO_MATCH, SUCCESS, Filter, rejected
from cli.parity.upstream.reservation.matching import BrokenAffinity, Incoming, decide, incoming_of, owns
from cli.parity.upstream.reservation.node_state import NodeState
from cli.parity.upstream.reservation.nomination import Nominations
from cli.parity.upstream.reservation.quirks import Quirk, Quirks
from cli.parity.upstream.reservation.reserved import ALLOCATED, Json, Reserved, requests_of, reserved_of, shown

_AFFINITY = (
    "annotation scheduling.koordinator.sh/reservation-affinity cannot be read: "
    "it is no JSON: its end is missing; correct or remove it"
)
_ANNOTATION = (
    "annotation scheduling.koordinator.sh/reservation-restricted-options cannot be read: "
    "it is no JSON: its end is missing; correct or remove it"
)
_OWNERS = "spec.owners is empty: name the pods that may use it by object, controller or labelSelector"
_TIMES = "neither spec.ttl nor spec.expires is set: give one of them"


def predicted(op: str, given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Answers one case."""
    match op:
        case "match":
            return _match(given, quirks)
        case "cycle":
            return _cycle(given, quirks)
    return _reserve_pod(given, quirks)


def _match(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    reserved = reserved_of(given["reservation"], quirks, is_updated=False)
    found: dict[str, Any] = {
        "ownersValid": reserved.is_valid,
        "resourceNames": reserved.names,
        "ownerMatched": owns(given["pod"], reserved),
    }
    try:
        pod = incoming_of(given["pod"])
    except BrokenAffinity:
        return found | {"affinityError": True}
    decision = decide(pod, reserved, given["node"])
    found |= {"hasAffinity": pod.affinity is not None, "decision": decision.result, "matched": decision.is_match}
    return found | ({"taints": {decision.taint: 1}} if decision.taint else {})


def _nodes(given: Mapping[str, Any], quirks: Quirks) -> list[NodeState]:
    is_refreshed = bool(given.get("refreshed", True))
    reserved = [reserved_of(raw, quirks, is_updated=is_refreshed) for raw in given["reservations"]]
    for pod in given["runningPods"]:
        mark = (pod["metadata"].get("annotations") or {}).get(ALLOCATED)
        for each in reserved:
            if mark and json.loads(mark)["uid"] == each.uid:
                each.owners[pod["metadata"]["uid"]] = requests_of(pod)
    return [NodeState(raw, given["runningPods"], reserved, quirks, is_refreshed=is_refreshed) for raw in given["nodes"]]


def _cycle(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    try:
        pod = incoming_of(given["pod"])
    except BrokenAffinity as error:
        text = str(error) if Quirk.BROKEN_OBJECTS in quirks else _AFFINITY
        return {"beforePreFilter": rejected(text, code="Error")}
    nodes = _nodes(given, quirks)
    candidates = nodes
    if pod.required_name:
        candidates = [at for at in nodes if any(each.name == pod.required_name for each in at.reserved)] or nodes
    for at in candidates:
        at.match(pod)
    found: dict[str, Any] = {"nodes": {at.name: _prepared(at, pod) for at in nodes}}
    participants = [at.name for at in nodes if at.takes_part]
    if not participants:
        unresolvable = rejected(NO_MATCH, code="UnschedulableAndUnresolvable")
        return found | {"preFilter": unresolvable if pod.affinity is not None else {"code": "Skip"}}
    found["preFilter"] = SUCCESS
    tried = nodes
    if pod.affinity is not None:
        found["preFilterNodes"] = sorted(participants)
        tried = [at for at in nodes if at.takes_part]
    filtering, removed = Filter(pod, given["args"]), given.get("removedPods") or ()
    for at in tried:
        at.take_away(removed, pod)
        found["nodes"][at.name]["filter"] = filtering.node(at)
    passing = [at for at in tried if found["nodes"][at.name]["filter"] == SUCCESS]
    if passing and not removed:
        _after_filter(found, pod, passing, filtering)
    return found


def _prepared(at: NodeState, pod: Incoming) -> dict[str, Any]:
    found: dict[str, Any] = {
        "requested": shown(at.requested()),
        "nonZeroRequested": shown(at.nonzero()),
        "pods": at.pod_count(),
    }
    if diagnosis := at.diagnosis(pod):
        found["diagnosis"] = diagnosis
    if at.takes_part:
        found |= {
            "matched": [each.name for each in at.matched],
            "unmatched": [each.name for each in at.unmatched],
            "available": {each.name: shown(each.available()) for each in at.matched},
        }
    return found


def _after_filter(found: dict[str, Any], pod: Incoming, passing: list[NodeState], by: Filter) -> None:
    nominations = Nominations(pod, passing, by)
    if pod.is_ignored:
        found["preScore"] = {"code": "Skip"}
    else:
        found["preScore"] = SUCCESS
        if preferred := nominations.preferred():
            found["preferredNode"] = preferred
        scores = {at.name: nominations.node_score(at.name) for at in passing}
        highest = max(scores.values())
        for at in passing:
            entry = found["nodes"][at.name]
            entry["score"] = scores[at.name]
            entry["normalizedScore"] = 100 * scores[at.name] // highest if highest else 0
            if at.matched:
                entry["nominateFilter"] = nominations.filters[at.name]
                entry["reservationScore"] = nominations.scores[at.name]
                entry["nominated"] = nominations.shown(at.name)
    _reserve(found, pod, passing[0], [] if pod.is_ignored else nominations.nominated.get(passing[0].name, []))


def _reserve(found: dict[str, Any], pod: Incoming, at: NodeState, nominated: list[Reserved]) -> None:
    if len(nominated) > 1:
        return
    found["reserveNode"] = at.name
    if not nominated and pod.affinity is not None and not pod.is_ignored:
        found["reserve"] = rejected(NO_MATCH)
        return
    found |= {"reserve": SUCCESS, "assumed": None}
    if not nominated:
        return
    used = nominated[0]
    if used.raw["metadata"].get("deletionTimestamp"):
        found["reserve"], found["assumed"] = rejected("target reservation is terminating", code="Error"), None
        return
    found["assumed"] = used.name
    found["annotation"] = msgspec.json.encode({"name": used.name, "uid": used.uid}).decode()


def _reserve_pod(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    raw = given["newReservation"]
    metadata, spec = raw["metadata"], raw["spec"]
    pinned = (spec["template"].get("spec") or {}).get("nodeName", "")
    annotations = {
        **(metadata.get("annotations") or {}),
        "scheduling.koordinator.sh/reservation-name": metadata["name"],
        "scheduling.koordinator.sh/reserve-pod": "true",
        **({"scheduling.koordinator.sh/reservation-node": pinned} if pinned else {}),
    }
    pod = {
        "metadata": {
            "annotations": annotations,
            **({"labels": metadata["labels"]} if metadata.get("labels") else {}),
            "name": metadata["uid"],
            "namespace": "default",
            "uid": metadata["uid"],
        },
        "spec": {
            "containers": spec["template"]["spec"]["containers"],
            "priority": 2**31 - 1,
            "schedulerName": "default-scheduler",
        },
    }
    found: dict[str, Any] = {"reservePod": pod}
    if problem := _problem(raw, quirks):
        return found | {"preFilter": rejected(problem, code="Error")}
    found |= {"preFilter": SUCCESS, "nodes": {}}
    policy = spec.get("allocatePolicy", "")
    for at in _nodes(given, quirks):
        at.unmatched = [each for each in at.usable if each.owners]
        at.takes_part = bool(at.unmatched)
        status = SUCCESS
        if pinned not in ("", at.name):
            text = "node(s) didn't match the nodeName specified by reservation"
            status = rejected(text, code="UnschedulableAndUnresolvable")
        elif any((policy == "") != (each.policy == "") for each in at.usable):
            status = rejected("node(s) reservation allocate policy conflict", code="UnschedulableAndUnresolvable")
        found["nodes"][at.name] = {"filter": status, "requested": shown(at.requested())}
    return found


def _problem(raw: Json, quirks: Quirks) -> str:
    """Returns why a Reservation is not placed, in upstream's or in production's words."""
    is_upstream = Quirk.BROKEN_OBJECTS in quirks
    if not raw["spec"].get("owners"):
        return "the reservation misses the owner spec" if is_upstream else _OWNERS
    if "ttl" not in raw["spec"] and "expires" not in raw["spec"]:
        return "the reservation misses the expiration spec" if is_upstream else _TIMES
    is_valid = reserved_of(raw, quirks, is_updated=False).is_valid
    return "" if is_upstream or is_valid else _ANNOTATION
