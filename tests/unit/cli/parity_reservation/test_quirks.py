"""Each quirk of upstream's Reservations has an input in which it acts alone, and a rule that recognises that input."""

from typing import Any

import pytest

from cli.parity.case_domain import Rule
from cli.parity.compare import difference
from cli.parity.runners.scheduler.reservation import answer
from cli.parity.upstream.quirk_rules import rules_of
from cli.parity.upstream.reservation.cases import predicted
from cli.parity.upstream.reservation.quirks import NONE, Quirk

Json = dict[str, Any]
OWNERS = [{"labelSelector": {"matchLabels": {"app": "x"}}}]
MARK = "scheduling.koordinator.sh/reservation-allocated"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"


def node(name: str = "node-0", cpu: str = "10") -> Json:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}}


def reserved(name: str = "r", cpu: str = "4", on: str = "node-0", **more: Any) -> Json:
    metadata = {"name": name, "uid": f"uid-{name}", **more.pop("metadata", {})}
    held = {"cpu": cpu, **more.pop("held", {})}
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": held}}]}}
    spec = {"owners": OWNERS, "template": template, "ttl": "24h0m0s", "allocateOnce": False, **more}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Available", "nodeName": on, "allocatable": held},
    }


def pod(name: str = "pod-1", cpu: str = "2", on: str = "", of: str = "", annotations: Json | None = None) -> Json:
    notes = {**({MARK: f'{{"name":"{of}","uid":"uid-{of}"}}'} if of else {}), **(annotations or {})}
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "labels": {"app": "x"},
        "annotations": notes,
    }
    spec: Json = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}
    if not on:
        return {"metadata": metadata, "spec": spec}
    return {"metadata": metadata, "spec": {**spec, "nodeName": on}, "status": {"phase": "Running"}}


def stranger(annotations: Json | None = None, cpu: str = "2") -> Json:
    """A pod that no owner names."""
    found = pod(cpu=cpu, annotations=annotations)
    found["metadata"]["labels"] = {"app": "y"}
    return found


def case(*reservations: Json, running: tuple[Json, ...] = (), incoming: Json | None = None, **more: Any) -> Json:
    return {
        "args": {},
        "nodes": [node()],
        "reservations": list(reservations),
        "runningPods": list(running),
        "refreshed": False,
        "pod": incoming or pod(),
        **more,
    }


NAMED = {AFFINITY: '{"name":"r"}'}
ORDER = "scheduling.koordinator.sh/reservation-order"
OPTIONS = "scheduling.koordinator.sh/reservation-restricted-options"
INNER = "node.koordinator.sh/reservation"

ACTS: dict[Quirk, Json] = {
    Quirk.BROKEN_OBJECTS: case(reserved(), incoming=pod(annotations={AFFINITY: "{"})),
    Quirk.LATE_CONSUMPTION: case(reserved(allocateOnce=True), running=(pod("own", of="r", on="node-0"),)),
    Quirk.COUNTED_TWICE: case(
        reserved(),
        running=(pod("own", of="r", on="node-0"),),
        incoming=stranger({AFFINITY: "{}"}),
    ),
    Quirk.WHOLE_OWNER: case(
        reserved(),
        running=(pod("own", "6", of="r", on="node-0"),),
        incoming=stranger(),
    ),
    Quirk.NAMED_AMOUNTS: case(reserved(allocatePolicy="Restricted"), incoming=pod(cpu="5", annotations=NAMED)),
    Quirk.REPEATED_REASONS: case(
        reserved(allocatePolicy="Restricted"),
        reserved("s", allocatePolicy="Restricted"),
        incoming=pod(cpu="5", annotations={AFFINITY: "{}"}),
    ),
    Quirk.CUT_INNER: case(
        reserved(
            allocatePolicy="Restricted",
            held={"memory": "1Gi"},
            metadata={"annotations": {OPTIONS: '{"resources":["memory"]}', INNER: '{"resources":{"cpu":"1"}}'}},
        ),
        refreshed=True,
    ),
    Quirk.ORDER_OF_ANY: case(
        reserved(metadata={"labels": {ORDER: "1"}}, allocatePolicy="Restricted"),
        reserved("s", cpu="6", allocatePolicy="Restricted"),
        incoming=pod(cpu="5"),
    ),
    Quirk.PREEMPTION_REASON: case(
        reserved(),
        running=(pod("own", "1", of="r", on="node-0"), pod("run", "1", on="node-0")),
        incoming=stranger(cpu="12"),
        removedPods=["run"],
    ),
}


def rules() -> dict[str, Rule]:
    return {rule.section: rule for rule in rules_of(predicted, Quirk)}


def test_every_quirk_has_its_input() -> None:
    assert set(ACTS) == set(Quirk)


@pytest.mark.parametrize("quirk", ACTS)
def test_a_quirk_acts_alone_and_production_answers_without_it(quirk: Quirk) -> None:
    given = ACTS[quirk]
    assert [section for section, rule in rules().items() if rule.recognises("cycle", given)] == [quirk.value]
    assert difference(predicted("cycle", given, NONE), answer("cycle", given)) is None


def test_no_rule_recognises_what_production_and_upstream_answer_alike() -> None:
    given = case(reserved(), running=(pod("own", "1", of="r", on="node-0"),))
    assert [section for section, rule in rules().items() if rule.recognises("cycle", given)] == []
