"""The NodeSLO in force."""

from pathlib import Path
from typing import Any

import pytest

from services.node_agent.states_informer.node_slo import FILE, NodeSloInformer
from shared.agents import node_slo
from shared.agents.node_slo import NodeSlo


def message(epoch: int, seq: int, spec: dict[str, Any] | None) -> bytes:
    return node_slo.encode(NodeSlo("n", epoch, seq, spec))


def suppress(percent: object) -> dict[str, Any]:
    return {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": percent}}


def percent(slo_informer: NodeSloInformer) -> int | None:
    threshold = slo_informer.spec and slo_informer.spec.resource_used_threshold_with_be
    return threshold.cpu_suppress_threshold_percent if threshold else None


def test_the_newest_one_is_in_force_however_they_arrive(tmp_path: Path) -> None:
    slo_informer = NodeSloInformer("n", tmp_path)
    assert slo_informer.receive(message(5, 900, suppress(60)))
    assert not slo_informer.receive(message(5, 900, suppress(60)))
    assert not slo_informer.receive(message(5, 899, suppress(50)))
    assert not slo_informer.receive(message(4, 5_000, suppress(40)))
    assert percent(slo_informer) == 60
    assert slo_informer.receive(message(6, 3, suppress(70)))
    assert percent(slo_informer) == 70


def test_it_stays_in_force_after_a_restart(tmp_path: Path) -> None:
    NodeSloInformer("n", tmp_path / "new").receive(message(5, 900, suppress(60)))
    again = NodeSloInformer("n", tmp_path / "new")
    again.load()
    assert percent(again) == 60
    assert not again.receive(message(5, 899, suppress(50)))


def test_an_object_that_is_gone_brings_the_defaults_back(tmp_path: Path) -> None:
    slo_informer = NodeSloInformer("n", tmp_path)
    slo_informer.receive(message(5, 900, suppress(60)))
    assert slo_informer.receive(message(5, 901, None))
    assert slo_informer.spec is None
    assert slo_informer.in_force is not None


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (
            message(9, 9, suppress(101)),
            "spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent: is 101; give 0 to 100",
        ),
        (message(9, 9, suppress("60")), "cpuSuppressThresholdPercent: Expected `int | null`, got `str`"),
        (
            message(9, 9, {"cpuBurstStrategy": {"policy": "often"}}),
            "spec.cpuBurstStrategy.policy: is 'often'; give one of auto, ",
        ),
        (node_slo.encode(NodeSlo("other", 9, 9, None)), "names 'other', another node"),
        (b"no JSON", "NodeSLO of node n: "),
    ],
)
def test_an_invalid_node_slo_is_rejected_and_the_last_good_one_stays(
    bad: bytes, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slo_informer = NodeSloInformer("n", tmp_path)
    slo_informer.receive(message(5, 900, suppress(60)))
    assert not slo_informer.receive(bad)
    assert (percent(slo_informer), slo_informer.refused) == (60, 1)
    assert text in caplog.records[-1].why  # type: ignore[attr-defined]
    assert slo_informer.receive(message(5, 901, suppress(61)))  # an invalid one does not block later ones


def test_unknown_fields_of_the_object_are_ignored(tmp_path: Path) -> None:
    slo_informer = NodeSloInformer("n", tmp_path)
    spec = {
        "resourceUsedThresholdWithBE": {"cpuEvictBESatisfactionLowerPercent": 60, "someday": 1},
        "resourceQOSStrategy": {
            "lsrClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}, "memoryQOS": {"wmarkMinAdj": -25}},
            "beClass": {"resctrlQOS": {"catRangeEndPercent": 30}, "networkQOS": {"egressLimit": "50M"}},
            "policies": {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"},
        },
        "cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPeriodSeconds": -1},
        "systemStrategy": {"minFreeKbytesFactor": 100},
        "hostApplications": [{"name": "nginx"}],
        "extensions": {"mine": [1]},
    }
    assert slo_informer.receive(message(5, 900, spec))
    assert slo_informer.spec is not None
    assert slo_informer.spec.resource_used_threshold_with_be is not None
    assert slo_informer.spec.resource_used_threshold_with_be.cpu_evict_be_satisfaction_lower_percent == 60


@pytest.mark.parametrize("kept", [b"", b"{", message(5, 900, suppress(400)), node_slo.encode(NodeSlo("other", 9, 9))])
def test_an_invalid_file_is_logged_and_replaced_by_the_next_message(
    kept: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(kept)
    slo_informer = NodeSloInformer("n", tmp_path)
    slo_informer.load()
    assert slo_informer.in_force is None
    assert "cannot be used" in caplog.text
    assert slo_informer.receive(message(1, 1, suppress(60)))
    assert (tmp_path / FILE).read_bytes() == message(1, 1, suppress(60))


def test_a_node_slo_that_cannot_be_stored_is_in_force_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    slo_informer = NodeSloInformer("n", tmp_path / "file" / "below")
    for seq in (1, 2):
        assert slo_informer.receive(message(1, seq, suppress(60)))
    assert caplog.text.count("cannot be kept") == 1
