"""How nodes are to report, by the worked examples of spec/slo-controller.md 1.4."""

import json
from typing import Any

from services.slo_controller.config.colocation_strategy import ANNOTATION
from services.slo_controller.config.node_metric_spec import node_metric_spec
from services.slo_controller.config.slo_configmap import config_of, read
from shared.admission.slo_config.document_validation import COLOCATION
from shared.kube.meta import Metadata

DEFAULT = {
    "aggregateDurationSeconds": 300,
    "reportIntervalSeconds": 60,
    "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
    "nodeMemoryCollectPolicy": "usageWithoutPageCache",
}


def policy(document: dict[str, Any] | None, node: Metadata = Metadata(name="n")) -> dict[str, Any]:  # noqa: B008  frozen
    data = {} if document is None else {COLOCATION: json.dumps(document)}
    spec = node_metric_spec(config_of(read(data, {}).texts).colocation, node)
    found: dict[str, Any] = spec["metricCollectPolicy"]
    return found


def test_k1_without_a_config_the_spec_has_the_defaults() -> None:
    assert policy(None) == DEFAULT


def test_k2_k3_the_spec_has_the_strategys_interval_where_it_is_enabled() -> None:
    assert policy({"enable": True, "metricReportIntervalSeconds": 20}) == DEFAULT | {"reportIntervalSeconds": 20}
    assert policy({"enable": False, "metricReportIntervalSeconds": 20}) == DEFAULT


def test_k4_a_node_strategy_applies_to_its_nodes_alone() -> None:
    entry = {"nodeSelector": {"matchLabels": {"pool": "a"}}, "metricAggregatePolicy": {"durations": ["1m"]}}
    document = {"enable": True, "nodeConfigs": [entry]}
    found = policy(document, Metadata(name="n", labels={"pool": "a"}))
    assert found["nodeAggregatePolicy"] == {"durations": ["1m0s"]}
    assert policy(document) == DEFAULT


def test_k6_an_invalid_annotation_leaves_the_defaults() -> None:
    node = Metadata(name="n", annotations={ANNOTATION: '{"metricReportIntervalSeconds": 0}'})
    assert policy({"enable": True, "metricReportIntervalSeconds": 20}, node) == DEFAULT


def test_an_unknown_collect_policy_counts_as_the_default() -> None:
    document = {"enable": True, "metricMemoryCollectPolicy": "usageWithoutPagecache", "metricReportIntervalSeconds": 77}
    assert policy(document) == DEFAULT | {"reportIntervalSeconds": 77}
