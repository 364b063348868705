"""Validation of slo-controller-config, by the worked examples of spec/slo-controller.md 9 and recorded results."""

import json
from typing import Any

import pytest

from shared.admission.slo_config.document_validation import (
    BURST,
    COLOCATION,
    CONFLICT,
    NETWORK,
    OVERLAP,
    PARAM,
    PARSE,
    QOS,
    SYSTEM,
    THRESHOLD,
    validate,
)
from tests.support.recorded_cases import recorded


def reason(data: dict[str, Any], nodes: dict[str, dict[str, str]] | None = None) -> str:
    problem = validate({}, {key: json.dumps(document) for key, document in data.items()}, nodes or {})
    return problem.reason if problem else ""


def colocation(*selectors: dict[str, Any]) -> dict[str, Any]:
    return {COLOCATION: {"nodeConfigs": [{"nodeSelector": selector} for selector in selectors]}}


def labels(**selected: str) -> dict[str, Any]:
    return {"matchLabels": selected}


def network(system: dict[str, Any], **classes: Any) -> dict[str, Any]:
    strategy = {name: {"networkQOS": {"ingressRequest": share}} for name, share in classes.items()}
    return {QOS: {"clusterStrategy": strategy}, SYSTEM: system}


W: dict[str, tuple[dict[str, Any], str]] = {
    "W1": ({COLOCATION: {"cpuReclaimThresholdPercent": -1}}, PARAM),
    "W2": ({COLOCATION: {"resourceDiffThreshold": 1.5}}, PARAM),
    "W2 at the bound": ({COLOCATION: {"resourceDiffThreshold": 1.0}}, ""),
    "W3": ({THRESHOLD: {"clusterStrategy": {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 60}}}, ""),
    "W3 equal": (
        {THRESHOLD: {"clusterStrategy": {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 70}}},
        PARAM,
    ),
    "W3 one alone": ({THRESHOLD: {"clusterStrategy": {"memoryEvictThresholdPercent": 70}}}, PARAM),
    "W4": (colocation(labels(a="1"), labels(a="1", b="2")), OVERLAP),
    "W7": (colocation({}), PARAM),
    "W8": (network({"clusterStrategy": {"totalNetworkBandwidth": "1G"}}, lsrClass=50, lsClass=60), NETWORK),
    "W9": ({BURST: {"clusterStrategy": {"cpuBurstPercent": 0}}}, PARAM),
    "W10": (network({"clusterStrategy": {}}, lsClass=40), NETWORK),
    "W11": (
        colocation({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}, labels(zone="b")),
        OVERLAP,
    ),
    "Q10": ({QOS: {"clusterStrategy": {}}}, PARSE),
}


@pytest.mark.parametrize("id_", W)
def test_the_worked_examples(id_: str) -> None:
    data, expected = W[id_]
    assert reason(data) == expected


def test_w5_a_real_node_that_two_strategies_select_is_a_conflict() -> None:
    data = colocation(labels(a="1"), labels(b="2"))
    assert reason(data) == ""
    assert reason(data, {"n": {"a": "1", "b": "2"}}) == CONFLICT


def test_w6_an_unchanged_key_is_not_validated() -> None:
    before = {SYSTEM: "{"}
    assert validate(before, {SYSTEM: "{", COLOCATION: '{"enable": true}'}, {}) is None


def test_names_must_be_present_and_unique_where_required() -> None:
    text = json.dumps({"nodeConfigs": [{"nodeSelector": labels(a="1")}]})
    assert validate({}, {COLOCATION: text}, {}) is None
    problem = validate({}, {COLOCATION: text}, {}, names=True)
    assert problem
    assert problem.path == "nodeConfigs[0].name"


def test_every_recorded_result_is_upstreams() -> None:
    for case in recorded("webhook", "validateConfigMap"):
        given = case.input
        if given["operation"] == "DELETE" or given["configMap"]["metadata"]["name"] != "slo-controller-config":
            continue  # not the webhook's business
        nodes = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in given["nodes"]}
        before = (given.get("oldConfigMap") or {}).get("data") or {}
        after = given["configMap"].get("data") or {}
        problem = validate(before, after, nodes, names=given["nodeStrategyNameNeedCheck"])
        assert (problem.reason if problem else None) == case.output.get("reason"), case.case
