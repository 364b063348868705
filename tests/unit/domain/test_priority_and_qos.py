"""Priority and QoS classes, against the table of spec/api.md 3."""

import pytest

from shared.domain.priority import Priority, of_value, priority, priority_value, raw_priority, resource_of
from shared.domain.qos import QoS, kubernetes_qos, qos, raw_qos
from shared.kube.meta import Metadata
from shared.kube.pod import Container, Pod, PodStatus, ResourceRequirements
from tests.support.pods import kept_pod

BOTH = {"cpu": "1", "memory": "1Gi"}


def labelled(priority_value_: int | None = None, **labels: str) -> Pod:
    names = {"qos": "koordinator.sh/qosClass", "band": "koordinator.sh/priority-class"}
    return kept_pod(labels={names[key]: text for key, text in labels.items()}, containers=(), priority=priority_value_)


def of_containers(*resources: ResourceRequirements | None, level: ResourceRequirements | None = None) -> Pod:
    return kept_pod(containers=tuple(Container(resources=each) for each in resources), resources=level)


@pytest.mark.parametrize(
    ("value", "band"),
    [
        *((edge, Priority.PROD) for edge in (9000, 9999)),
        *((edge, Priority.MID) for edge in (7000, 7999)),
        *((edge, Priority.BATCH) for edge in (5000, 5999)),
        *((edge, Priority.FREE) for edge in (3000, 3999)),
        *((edge, Priority.NONE) for edge in (None, -1, 0, 2999, 4000, 4999, 6000, 6999, 8000, 8999, 10000)),
    ],
)
def test_a_priority_value_names_the_band_that_holds_it(value: int | None, band: Priority) -> None:
    assert of_value(value) is band


def test_an_unknown_class_label_means_none_and_hides_the_value() -> None:
    pod = labelled(5500, band="koord-other", qos="LS")
    assert (raw_priority(pod), priority(pod)) == (Priority.NONE, Priority.PROD)


@pytest.mark.parametrize(
    ("qos_class", "band"), [("LSE", "koord-prod"), ("SYSTEM", "koord-prod"), ("BE", "koord-batch")]
)
def test_without_a_band_the_qos_class_decides(qos_class: str, band: str) -> None:
    assert priority(labelled(qos=qos_class)) == band


def test_a_pod_without_labels_and_requests_is_best_effort_and_batch() -> None:
    assert (raw_qos(labelled()), qos(labelled()), priority(labelled())) == (QoS.NONE, QoS.BE, Priority.BATCH)


def test_the_qos_class_of_the_status_takes_precedence_over_the_computed_one() -> None:
    pod = Pod(metadata=Metadata(name="p"), status=PodStatus(qos_class="Guaranteed"))
    assert qos(pod) is QoS.LSR


@pytest.mark.parametrize(
    ("pod", "kubernetes"),
    [
        (of_containers(None), "BestEffort"),
        (of_containers(ResourceRequirements(requests={"kubernetes.io/batch-cpu": "1"})), "BestEffort"),
        (of_containers(ResourceRequirements(requests={"cpu": "0"})), "BestEffort"),
        (of_containers(ResourceRequirements(requests=BOTH)), "Burstable"),
        (of_containers(ResourceRequirements(requests=BOTH, limits=BOTH)), "Guaranteed"),
        (of_containers(ResourceRequirements(requests=BOTH, limits=BOTH), None), "Burstable"),
        (of_containers(ResourceRequirements(limits=BOTH)), "Burstable"),
        (of_containers(ResourceRequirements(requests={"cpu": "1"}, limits={"cpu": "1"})), "Burstable"),
        (of_containers(None, level=ResourceRequirements(requests=BOTH, limits=BOTH)), "Guaranteed"),
        (of_containers(None, level=ResourceRequirements(requests=BOTH)), "Burstable"),
        (of_containers(ResourceRequirements(requests=BOTH), level=ResourceRequirements()), "BestEffort"),
    ],
)
def test_the_kubernetes_class_follows_from_cpu_and_memory(pod: Pod, kubernetes: str) -> None:
    assert kubernetes_qos(pod) == kubernetes


def test_the_default_priority_value_is_the_one_of_the_class() -> None:
    assert [priority_value(labelled(value, qos="BE")) for value in (None, 0, 42)] == [5500, 5500, 42]


@pytest.mark.parametrize(
    ("band", "resource", "real"),
    [
        (Priority.PROD, "cpu", "cpu"),
        (Priority.NONE, "nvidia.com/gpu", "nvidia.com/gpu"),
        (Priority.BATCH, "cpu", "kubernetes.io/batch-cpu"),
        (Priority.MID, "memory", "kubernetes.io/mid-memory"),
        (Priority.BATCH, "nvidia.com/gpu", ""),
        (Priority.FREE, "cpu", ""),
    ],
)
def test_a_class_requests_its_own_resources(band: Priority, resource: str, real: str) -> None:
    assert resource_of(band, resource) == real
