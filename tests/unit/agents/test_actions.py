"""Encoding of actions, receipts and NodeSLOs."""

import msgspec
import pytest

from shared.agents import actions, node_slo, receipt
from shared.agents.actions import ActionReport, AnyAction, BadAction, Burst, EvictionRequested, Suppressed
from shared.agents.node_slo import BadNodeSlo, NodeSlo
from shared.agents.receipt import Receipt


@pytest.mark.parametrize(
    "action",
    [
        Suppressed("cpuset", 24_000, "0-23"),
        Suppressed("cfsQuota"),
        Burst("0f1c", "c0ffee", 240_000),
        EvictionRequested("0f1c", "memory of best-effort pods is above 70 % of the node"),
    ],
)
def test_an_action_survives_encoding(action: AnyAction) -> None:
    report = ActionReport("worker-1", "3f2a", 1, 1_800_000_000_000_000_000, action)
    assert actions.decode(actions.encode(report), "worker-1") == report


@pytest.mark.parametrize(
    ("report", "text"),
    [
        ([2, "n", "b", 1, 1, {}], "action of node n: schema: Invalid value 2"),
        ([1, "n", "b", 1, 1, {"action": "burned"}], "action of node n: action.action: Invalid value 'burned'"),
        (
            [1, "n", "b", 1, 1, {"action": "evictionRequested", "pod_uid": "u", "reason": ""}],
            "action of node n: action.reason: ",
        ),
        (
            [1, "m", "b", 1, 1, {"action": "evictionRequested", "pod_uid": "u", "reason": "r"}],
            "action of node n: node: names 'm'",
        ),
        ("action", "action of node n: Expected `array`"),
    ],
)
def test_an_invalid_action_is_rejected_with_node_field_and_reason(report: object, text: str) -> None:
    with pytest.raises(BadAction) as error:
        actions.decode(msgspec.msgpack.encode(report), "n")
    assert str(error.value).startswith(text)


def test_a_receipt_names_its_message() -> None:
    refused = Receipt("report", "3f2a", 7, "names another node")
    assert receipt.decode(receipt.encode(refused)) == refused
    assert not refused.accepted
    assert receipt.decode(receipt.encode(Receipt("action", "3f2a", 1))).accepted


def test_the_newest_node_slo_is_the_one_with_the_highest_position() -> None:
    old, new = NodeSlo("n", 5, 900, {"resourceUsedThresholdWithBE": {"enable": True}}), NodeSlo("n", 6, 12)
    assert node_slo.decode(node_slo.encode(old), "n") == old
    assert max(old, new, key=lambda message: message.position) is new


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"node":"n","epoch":1}', "NodeSLO of node n: Object missing required field `seq`"),
        (b'{"node":"n","epoch":1,"seq":"x"}', "NodeSLO of node n: seq: Expected `int`"),
        (b'{"node":"m","epoch":1,"seq":2}', "NodeSLO of node n: node: names 'm'"),
        (b"{", "NodeSLO of node n: "),
        (b'{"node":"\xff","epoch":1,"seq":2}', "NodeSLO of node n: "),
    ],
)
def test_an_invalid_node_slo_is_rejected(data: bytes, text: str) -> None:
    with pytest.raises(BadNodeSlo) as error:
        node_slo.decode(data, "n")
    assert str(error.value).startswith(text)
