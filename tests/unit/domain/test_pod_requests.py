"""Requests and limits of a pod as a whole, by the rules of spec/scheduler-core.md 2.1."""

import pytest

from shared.domain.pod_requests import held_requests, pod_limits, pod_requests, scored_requests, whole
from shared.kube.meta import Metadata
from shared.kube.pod import (
    Container,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from tests.support.pods import kept_pod

MI = 1 << 20


def container(*, always: bool = False, limits: dict[str, str] | None = None, **requests: str) -> Container:
    return Container(
        resources=ResourceRequirements(requests=requests or None, limits=limits),
        restart_policy="Always" if always else None,
    )


def pod(
    *containers: Container,
    init: tuple[Container, ...] = (),
    overhead: dict[str, str] | None = None,
    level: ResourceRequirements | None = None,
) -> Pod:
    return kept_pod(containers=containers, init_containers=init, overhead=overhead, resources=level)


def test_containers_add_up_in_nanos_and_round_once() -> None:
    assert whole(pod_requests(pod(container(cpu="500u"), container(cpu="500u")))) == {"cpu": 1}


@pytest.mark.parametrize(
    ("init", "cpu_milli"),
    [
        ((container(cpu="3"),), 3000),
        ((container(cpu="500m"),), 1000),
        ((container(cpu="1", always=True),), 2000),
        ((container(cpu="1", always=True), container(cpu="1500m")), 2500),
        ((container(cpu="1500m"), container(cpu="1", always=True)), 2000),
        ((container(cpu="1", always=True), container(cpu="100m"), container(cpu="1", always=True)), 3000),
    ],
    ids=["larger", "smaller", "sidecar", "after a sidecar", "before a sidecar", "between sidecars"],
)
def test_init_containers_count_with_the_sidecars_beside_them(init: tuple[Container, ...], cpu_milli: int) -> None:
    assert whole(pod_requests(pod(container(cpu="1"), init=init)))["cpu"] == cpu_milli


def test_overhead_adds_to_requests_but_only_to_limits_that_exist() -> None:
    requests = pod(container(cpu="1", limits={"cpu": "2"}), overhead={"cpu": "100m", "memory": "10Mi"})
    assert whole(pod_requests(requests)) == {"cpu": 1100, "memory": 10 * MI}
    assert whole(pod_limits(requests)) == {"cpu": 2100}


def test_pod_level_resources_replace_the_sum_before_overhead() -> None:
    level = ResourceRequirements(requests={"cpu": "4", "example.com/x": "9"}, limits={"memory": "1Gi"})
    requests = pod(container(cpu="1", memory="5Mi", limits={"cpu": "2"}), level=level, overhead={"cpu": "1"})
    assert whole(pod_requests(requests)) == {"cpu": 5000, "memory": 5 * MI}
    assert whole(pod_limits(requests)) == {"cpu": 3000, "memory": 1024 * MI}


def test_a_container_without_requests_is_scored_with_the_defaults() -> None:
    requests = pod(container(), container(cpu="0", memory="1Mi"))
    assert whole(pod_requests(requests)) == {"cpu": 0, "memory": MI}
    assert whole(scored_requests(requests)) == whole(held_requests(requests)) == {"cpu": 100, "memory": 201 * MI}


def test_pod_level_requests_are_ignored_when_scored_and_count_when_assigned() -> None:
    requests = pod(container(), level=ResourceRequirements(requests={"cpu": "4"}))
    assert whole(scored_requests(requests)) == {"cpu": 100, "memory": 200 * MI}
    assert whole(held_requests(requests)) == {"cpu": 4000, "memory": 200 * MI}


def test_a_pod_without_containers_requests_nothing() -> None:
    assert pod_requests(pod()) == pod_limits(pod()) == {}


@pytest.mark.parametrize(
    ("runs_with", "set_aside", "infeasible", "cpu_milli"),
    [("1", "1", False, 2000), ("4", "1", False, 4000), ("1", "3", False, 3000), ("1", "1", True, 1000)],
    ids=["grows", "shrinks", "set aside", "infeasible"],
)
def test_a_container_during_a_resize_counts_with_the_maximum(
    runs_with: str, set_aside: str, infeasible: bool, cpu_milli: int
) -> None:
    one = Container(name="c", resources=ResourceRequirements(requests={"cpu": "2"}))
    status = ContainerStatus(
        name="c",
        resources=ResourceRequirements(requests={"cpu": runs_with}),
        allocated_resources={"cpu": set_aside},
    )
    pending = PodCondition(type="PodResizePending", status="True", reason="Infeasible")
    resized = Pod(
        metadata=Metadata(name="p"),
        spec=PodSpec(containers=(one,)),
        status=PodStatus(container_statuses=(status,), conditions=(pending,) if infeasible else ()),
    )
    assert whole(pod_requests(resized)) == {"cpu": cpu_milli}
