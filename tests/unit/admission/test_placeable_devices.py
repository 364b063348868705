"""The webhook's rules about devices, and those of the scheduler's plugin, on the same pods."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from services.scheduler.plugins.device_share.pod_device_requests import DeviceRequests, read_device_requests
from services.scheduler.plugins.helper.rejections import Rejection
from shared.admission.feature_gates import gates_of
from shared.admission.pod.pod_admission import PodWorld, check, mutated
from shared.admission.rejection import AdmissionRejected
from shared.domain.pod_requests import pod_requests, whole
from shared.kube.pod import Pod
from tests.unit.admission.objects import container, pod

KEYS = "koordinator.sh/"
AMOUNTS = {
    "nvidia.com/gpu": ("2",),
    f"{KEYS}gpu": ("50", "100", "150", "200"),
    f"{KEYS}gpu.shared": ("1", "2", "3"),
    f"{KEYS}gpu-core": ("0", "50", "100", "150", "200"),
    f"{KEYS}gpu-memory-ratio": ("0", "50", "100", "150", "200", "300"),
    f"{KEYS}gpu-memory": ("0", "8Gi"),
    "huawei.com/npu-core": ("4",),
    f"{KEYS}rdma": ("50", "150", "200"),
}
BOTH = "ValidatePodDeviceResource=true,RequirePlaceableDevices=true"


def admitted(after: dict[str, Any], gates: str) -> tuple[dict[str, Any], str]:
    """Returns a pod as the API server would store it, and why it is refused."""
    world = PodWorld(gates=gates_of(gates))
    stored = mutated(world, after, "web", lambda _: 0)
    try:
        check(world, stored, None, "web")
    except AdmissionRejected as refused:
        return stored, str(refused)
    return stored, ""


def placed(stored: dict[str, Any]) -> bool:
    """Reports whether the plugin knows the requests; every other rejection of it names a node."""
    read = msgspec.convert(stored, Pod)
    found = read_device_requests(read, whole(pod_requests(read)))
    assert isinstance(found, DeviceRequests | Rejection | None)
    return not isinstance(found, Rejection)


def requests_of_up_to_three_names() -> Iterator[dict[str, str]]:
    for names in (
        *((name,) for name in AMOUNTS),
        *itertools.combinations(AMOUNTS, 2),
        *itertools.combinations(AMOUNTS, 3),
    ):
        for amounts in itertools.product(*(AMOUNTS[name] for name in names)):
            yield dict(zip(names, amounts, strict=True))


def test_every_pod_that_the_webhook_accepts_is_known_to_the_plugin() -> None:
    accepted = 0
    for requests in requests_of_up_to_three_names():
        stored, refusal = admitted(pod(container(requests, requests)), BOTH)
        if not refusal:
            accepted += 1
            assert placed(stored), requests
    assert accepted > 100, "most requests are accepted by neither"


def test_every_pod_that_the_new_gate_refuses_is_refused_by_the_plugin() -> None:
    refused = 0
    for requests in requests_of_up_to_three_names():
        stored, refusal = admitted(pod(container(requests, requests)), "RequirePlaceableDevices=true")
        assert placed(stored) != bool(refusal), (requests, refusal)
        refused += bool(refusal)
    assert refused > 100


def test_containers_count_together_as_they_do_for_the_plugin() -> None:
    one, two = {f"{KEYS}rdma": "100"}, {f"{KEYS}rdma": "50"}
    stored, refusal = admitted(pod(container(one, one), container(two, two, "side")), BOTH)
    assert not placed(stored)
    assert refusal == (
        "pod web/nginx: no node can satisfy koordinator.sh/rdma: 150 (InvalidDeviceUnit); the combinations that the "
        "scheduler knows are in docs/devices.md, Requests"
    )


@pytest.mark.parametrize("gates", ["", "ValidatePodDeviceResource=true"])
def test_upstreams_rules_alone_accept_what_its_scheduler_refuses(gates: str) -> None:
    requests = {"nvidia.com/gpu": "2", f"{KEYS}gpu": "50"}
    stored, refusal = admitted(pod(container(requests, requests)), gates)
    assert (refusal, placed(stored)) == ("", False)
