"""Defaults of a NodeSLO. Source: spec/slo-controller.md 7.1, 8."""

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


def parts(spec: QosClass | None) -> tuple[object, object, object]:
    assert spec is not None
    return spec.cpu_qos, spec.memory_qos, spec.resctrl_qos


def test_an_empty_spec_disables_everything() -> None:
    found = in_force(NodeSloSpec())
    assert found.resource_used_threshold_with_be == DEFAULT_THRESHOLD
    assert (found.cpu_burst_strategy, found.system_strategy) == (DEFAULT_BURST, DEFAULT_SYSTEM)
    qos = qos_of("{}")
    for each in (qos.lsr_class, qos.ls_class, qos.be_class):
        assert parts(each) == (OFF_CPU, OFF_MEMORY, OFF_RESCTRL)


def test_an_enabled_part_has_the_defaults_of_its_class_where_a_field_is_absent() -> None:
    qos = qos_of('{"beClass": {"cpuQOS": {"enable": true}, "memoryQOS": {"enable": true, "wmarkRatio": 80}}}')
    cpu, memory, resctrl = parts(qos.be_class)
    assert cpu == replace(OFF_CPU, enable=True, group_identity=-1)
    assert memory == replace(OFF_MEMORY, enable=True, wmark_ratio=80, wmark_scale_permill=20, wmark_min_adj=50)
    assert resctrl == OFF_RESCTRL
    assert parts(qos.ls_class) == (OFF_CPU, OFF_MEMORY, OFF_RESCTRL)


def test_values_of_a_disabled_part_count_in_the_system_class_alone() -> None:
    spec = '{"cpuQOS": {"coreExpeller": true}}'
    qos = qos_of(f'{{"lsClass": {spec}, "systemClass": {spec}}}')
    assert parts(qos.ls_class)[0] == OFF_CPU
    assert parts(qos.system_class)[0] == replace(OFF_CPU, core_expeller=True)
