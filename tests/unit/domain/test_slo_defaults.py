"""What a NodeSLO means where it is silent. Source: spec/slo-controller.md 7.1, 8."""

import msgspec
from msgspec.structs import replace

from shared.domain.slo_defaults import (
    DEFAULT_BURST,
    DEFAULT_SYSTEM,
    DEFAULT_THRESHOLD,
    OFF_CPU,
    OFF_MEMORY,
    OFF_RESCTRL,
    NodeSloSpec,
    in_force,
)
from shared.kube.slo_config import QosClass, ResourceQos


def qos_of(received: str) -> ResourceQos:
    spec = msgspec.json.decode(f'{{"resourceQOSStrategy": {received}}}', type=NodeSloSpec)
    found = in_force(spec).resource_qos_strategy
    assert found is not None
    return found


def parts(stated: QosClass | None) -> tuple[object, object, object]:
    assert stated is not None
    return stated.cpu_qos, stated.memory_qos, stated.resctrl_qos


def test_an_empty_one_switches_everything_off() -> None:
    found = in_force(NodeSloSpec())
    assert found.resource_used_threshold_with_be == DEFAULT_THRESHOLD
    assert (found.cpu_burst_strategy, found.system_strategy) == (DEFAULT_BURST, DEFAULT_SYSTEM)
    qos = qos_of("{}")
    for each in (qos.lsr_class, qos.ls_class, qos.be_class):
        assert parts(each) == (OFF_CPU, OFF_MEMORY, OFF_RESCTRL)


def test_what_is_enabled_has_the_defaults_of_its_class_under_what_is_stated() -> None:
    qos = qos_of('{"beClass": {"cpuQOS": {"enable": true}, "memoryQOS": {"enable": true, "wmarkRatio": 80}}}')
    cpu, memory, resctrl = parts(qos.be_class)
    assert cpu == replace(OFF_CPU, enable=True, group_identity=-1)
    assert memory == replace(OFF_MEMORY, enable=True, wmark_ratio=80, wmark_scale_permill=20, wmark_min_adj=50)
    assert resctrl == OFF_RESCTRL
    assert parts(qos.ls_class) == (OFF_CPU, OFF_MEMORY, OFF_RESCTRL)


def test_values_of_a_part_that_is_not_enabled_count_for_nothing_but_in_the_system_class() -> None:
    stated = '{"cpuQOS": {"coreExpeller": true}}'
    qos = qos_of(f'{{"lsClass": {stated}, "systemClass": {stated}}}')
    assert parts(qos.ls_class)[0] == OFF_CPU
    assert parts(qos.system_class)[0] == replace(OFF_CPU, core_expeller=True)
