"""Labels and annotations of pods that cannot be read have no effect, as upstream, and are named where people look."""

import json

import pytest

from cli.doctor.check_unread_objects import about_ignored_pod_settings
from services.gateway.effects.pod_kubernetes_events import ignored_settings_event
from services.scheduler.explain.explain_pod import explain
from services.scheduler.explain.explanation_text import render
from services.scheduler.state.ignored_pod_settings import (
    ESTIMATED_AFTER_INITIALIZED,
    ESTIMATED_AFTER_SCHEDULED,
    ESTIMATED_FACTORS,
    ignored_pod_settings,
)
from services.scheduler.state.pod_equivalence_class import class_key
from shared.domain.misspelt_settings import NAMES, misspelt_settings
from shared.domain.pod_annotations import ALLOCATE_HINT, JOINT_ALLOCATE, NUMA_SPEC, PARTITION_SPEC, RESOURCE_SPEC
from shared.domain.priority import LABEL as PRIORITY_CLASS
from shared.domain.priority import SUB_PRIORITY
from shared.domain.qos import LABEL as QOS_CLASS
from shared.events.scheduling import PodPlaced, PodUnschedulable
from tests.support.scheduling_world import World, node, pod

QOS_FAULT = "label koordinator.sh/qosClass is 'LSX' and counts as none"


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (QOS_CLASS, "LSX", f"{QOS_FAULT}; give one of LSE, LSR, LS, BE, SYSTEM"),
        (QOS_CLASS, "guaranteed", "counts as none; give one of LSE, LSR, LS, BE, SYSTEM"),
        (
            PRIORITY_CLASS,
            "koord-prdo",
            "is 'koord-prdo' and counts as none; give one of koord-prod, koord-mid, koord-batch, koord-free",
        ),
        (SUB_PRIORITY, "high", "label koordinator.sh/priority is 'high' and counts as 0; give a whole number"),
        (SUB_PRIORITY, "99999999999", "counts as 0"),
        (ESTIMATED_FACTORS, "cpu=85", "is 'cpu=85' and is ignored; give JSON with percentages"),
        (ESTIMATED_FACTORS, '{"cpu": "85"}', "is ignored"),
        (ESTIMATED_AFTER_SCHEDULED, "1m", "is '1m' and is ignored; give a number of seconds"),
        (ESTIMATED_AFTER_INITIALIZED, "-5", "is ignored"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_it_should_be(name: str, text: str, fault: str) -> None:
    [found] = ignored_pod_settings({name: text}, {name: text})
    assert fault in found


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("koordinator.sh/qosclass", "koordinator.sh/qosClass"),
        ("quota.scheduling.koordinator.sh/nmae", "quota.scheduling.koordinator.sh/name"),
        ("scheduling.koordinator.sh/resource-spce", RESOURCE_SPEC),
        ("koordinator.sh/resource-spec", RESOURCE_SPEC),
        ("koordinator.sh/team", ""),
        ("example.com/qosClass", ""),
        ("evilkoordinator.sh/qosclass", ""),
    ],
)
def test_a_misspelt_name_is_named_with_the_one_that_is_meant(name: str, meant: str) -> None:
    fault = f"{name} is unknown, and has no effect; perhaps {meant!r} is meant"
    assert [*misspelt_settings({name: "1"}, {name: "1"})] == (
        [f"label {fault}", f"annotation {fault}"] if meant else []
    )


def test_a_known_name_is_not_misspelt() -> None:
    known = dict.fromkeys([f"{domain}/{each}" for domain, names in NAMES.items() for each in names], "1")
    assert [*misspelt_settings(known, known)] == []


@pytest.mark.parametrize(
    ("name", "text", "where", "meant"),
    [
        (RESOURCE_SPEC, '{"preferedCPUBindPolicy": "FullPCPUs"}', "preferedCPUBindPolicy", "preferredCPUBindPolicy"),
        (NUMA_SPEC, '{"numaTopologyPolcy": "Restricted"}', "numaTopologyPolcy", "numaTopologyPolicy"),
        (ALLOCATE_HINT, '{"gpu": {"selecto": {}}}', "gpu.selecto", "selector"),
        (JOINT_ALLOCATE, '{"deviceTypes": ["gpu"], "scope": "SamePCIe"}', "scope", ""),
        (PARTITION_SPEC, '{"allocatPolicy": "Restricted"}', "allocatPolicy", "allocatePolicy"),
    ],
)
def test_a_field_that_nothing_reads_is_named(name: str, text: str, where: str, meant: str) -> None:
    [found] = ignored_pod_settings({}, {name: text})
    assert found.startswith(f"annotation {name} has a field {where!r}, which has no effect")
    assert found.endswith(f"; perhaps {meant!r} is meant" if meant else "no effect")


def test_a_tenant_with_thousands_of_names_or_fields_costs_little_and_fills_no_event() -> None:
    names = dict.fromkeys([f"koordinator.sh/qosClas{n}" for n in range(20_000)], "x")
    fields = json.dumps({f"preferredCPUBindPolicy{n}": "" for n in range(100)})
    assert len([*misspelt_settings(names, names)]) == 32
    assert len([*ignored_pod_settings({}, {RESOURCE_SPEC: fields})]) == 8
    [found] = ignored_pod_settings({}, {RESOURCE_SPEC: fields + " " * 4096})
    assert found.endswith("fields without an effect are not sought in it")


def test_the_value_of_a_misspelt_annotation_makes_no_class_of_its_own() -> None:
    made = (pod(f"p{n}", annotations={"scheduling.koordinator.sh/resource-spce": str(n)}) for n in range(2))
    assert len({class_key(each) for each in made}) == 1


def test_a_text_that_is_no_json_is_left_to_the_plugin_that_reads_it() -> None:
    assert [*ignored_pod_settings({}, {RESOURCE_SPEC: "{", NUMA_SPEC: "[" * 4096, ALLOCATE_HINT: ""})] == []


def test_what_can_be_read_is_not() -> None:
    labels = {QOS_CLASS: "LSR", PRIORITY_CLASS: "koord-batch", SUB_PRIORITY: "0"}
    annotations = {
        ESTIMATED_FACTORS: json.dumps({"cpu": 85}),
        ESTIMATED_AFTER_SCHEDULED: "0",
        ESTIMATED_AFTER_INITIALIZED: "60",
    }
    assert [*ignored_pod_settings(labels, annotations)] == []
    assert [*ignored_pod_settings(None, None)] == []


MISSPELT = {NUMA_SPEC: '{"numaTopologyPolcy": "Restricted"}'}


def _world() -> World:
    world = World()
    world.add_node(node("n", cpu="8"))
    wrong = {QOS_CLASS: "LSX"}
    world.add_pod(pod("misspelt", cpu="1", labels={"koordinator.sh/qosclass": "LS"}, annotations=MISSPELT))
    world.add_pod(pod("placed", cpu="1", labels=wrong))
    world.add_pod(pod("large", cpu="99", labels=wrong))
    world.add_pod(pod("right", cpu="1", labels={QOS_CLASS: "LS"}))
    world.read()
    return world


def test_a_decision_records_them_so_that_the_pod_gets_a_kubernetes_event() -> None:
    decisions = {
        record.event.pod.removeprefix("d/"): record.event
        for record in _world().cycle()
        if isinstance(record.event, PodPlaced | PodUnschedulable)
    }
    assert decisions["right"].ignored == ()
    assert ignored_settings_event(decisions["right"], "", now_ns=1) is None
    assert len(decisions["misspelt"].ignored) == 2
    for name in ("placed", "large"):
        found = ignored_settings_event(decisions[name], "", now_ns=1)
        assert found is not None
        event, _ = found
        assert (event["type"], event["reason"]) == ("Warning", "SettingsIgnored")
        assert event["message"].startswith(QOS_FAULT)


def test_the_explanation_of_the_pod_and_the_doctor_name_them() -> None:
    world = _world()
    world.cycle()
    records = [record for log in world.logs.values() for record in log]
    shown = render(explain(records, "placed")).splitlines()
    assert shown[1].startswith(f"  ignored: {QOS_FAULT}")
    assert explain(records, "right").ignored == ()
    of_field, finding, of_name = about_ignored_pod_settings(world.view, ["koord-scheduler"])
    assert finding.what.startswith(f"2 pods (d/large, d/placed): {QOS_FAULT}")
    assert "workload's template" in finding.do
    misspelt = explain(records, "misspelt").ignored
    assert {of_field.what, of_name.what} == {f"1 pod (d/misspelt): {fault}" for fault in misspelt}
    _, finding, _ = about_ignored_pod_settings(world.view, ["koord-scheduler"], simulated=True)
    assert finding.do == "correct it: `koord dev patch pod large PATCH -n d`"
    assert [*about_ignored_pod_settings(world.view, ["another"])] == []
