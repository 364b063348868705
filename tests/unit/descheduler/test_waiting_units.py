"""Which units wait for capacity that moves could free, in which order, and faults of the arguments."""

from typing import Any

import pytest
from msgspec.structs import replace

from services.descheduler.plugins.waiting_units import DEVICE_POD, GANG, read_args, waiting_units
from shared.domain.component_config import BadConfig
from shared.domain.gang import POD_GROUP_LABEL
from shared.kube.pod import Pod, SchedulingGate
from tests.support.device_machines import gpu_pod
from tests.unit.descheduler.small_cluster import START_NS, SmallCluster

GPU = {"nvidia.com/gpu": "1"}


def waiting(name: str, seconds: int, requests: dict[str, str] | None = None, gang: str = "", **spec: Any) -> Pod:
    pod = gpu_pod(name, requests or {"cpu": "1"})
    metadata = replace(
        pod.metadata,
        creation_timestamp=SmallCluster().ago(seconds),
        labels={POD_GROUP_LABEL: gang} if gang else None,
    )
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name="", **spec))


def names(pods: list[Pod], **args: Any) -> list[str]:
    return [unit.name.partition("/")[2] for unit in waiting_units(pods, read_args(args, "args"), START_NS)]


def test_gangs_and_pods_with_devices_wait_the_longest_first() -> None:
    pods = [
        waiting("plain", 9000),
        waiting("short", 299, GPU),
        waiting("gpu", 400, GPU),
        waiting("m0", 350, gang="job"),
        waiting("m1", 500, gang="job"),
    ]
    assert names(pods) == ["job", "gpu"]
    assert names(pods, minWaitSeconds=200) == ["job", "gpu", "short"]
    assert names(pods, kinds=[DEVICE_POD]) == ["gpu"]
    (job,) = waiting_units(pods, read_args({"kinds": [GANG]}, "args"), START_NS)
    assert (job.wait_s, job.pods) == (500, ("m0", "m1"))


def test_pods_that_wait_for_something_else_or_run_are_no_units() -> None:
    gated = waiting("gated", 900, GPU, scheduling_gates=(SchedulingGate(name="later"),))
    runs = waiting("runs", 900, GPU)
    runs = replace(runs, spec=replace(runs.spec, node_name="a"))
    unknown = waiting("unknown", 900, GPU)
    unknown = replace(unknown, metadata=replace(unknown.metadata, creation_timestamp="then"))
    assert names([gated, runs, unknown, waiting("waits", 900, GPU)]) == ["waits"]


def test_namespaces_leave_out_units() -> None:
    pod = waiting("gpu", 900, GPU)
    namespace = pod.metadata.namespace
    assert names([pod], namespaces={"include": [namespace]}) == ["gpu"]
    assert names([pod], namespaces={"exclude": [namespace]}) == []


@pytest.mark.parametrize(
    ("plain", "path"),
    [
        ({"minWaitSeconds": 0}, "args.minWaitSeconds"),
        ({"maxMoves": 65}, "args.maxMoves"),
        ({"admitWithinSeconds": 0}, "args.admitWithinSeconds"),
        ({"retryAfterSeconds": 21_601}, "args.retryAfterSeconds"),
        ({"kinds": []}, "args.kinds"),
        ({"kinds": ["Gang", "Gang"]}, "args.kinds"),
        ({"kinds": ["Gang", "Pod"]}, "args.kinds[1]"),
        ({"namespaces": {"include": ["a"], "exclude": ["b"]}}, "args.namespaces"),
        ({"maxMovez": 1}, "args"),
    ],
)
def test_faults_of_the_arguments_have_paths(plain: dict[str, Any], path: str) -> None:
    with pytest.raises(BadConfig) as found:
        read_args(plain, "args")
    assert found.value.path == path
    assert plain.keys() != {"maxMovez"} or "maxMovez" in str(found.value)
