"""The spec of a NodeSLO, by the worked examples of spec/slo-controller.md 7.1 and upstream's recorded answers."""

import json
from typing import Any

import msgspec

from services.slo_controller.config.node_slo_spec import BANDWIDTH, node_slo_spec
from services.slo_controller.config.slo_configmap import config_of, read
from shared.admission.slo_config.document_validation import (
    BURST,
    HOST_APPLICATIONS,
    INTERFERENCE,
    QOS,
    SYSTEM,
    THRESHOLD,
)
from shared.kube.meta import Metadata
from shared.kube.quantity import nanos
from tests.support.recorded_cases import recorded

NODE = Metadata(name="n", labels={"pool": "a"})
EVERYWHERE: dict[str, Any] = {"nodeSelector": {}}


def spec_of(data: dict[str, object], node: Metadata = NODE) -> dict[str, Any]:
    reading = read({key: json.dumps(document) for key, document in data.items()}, {})
    assert not reading.problems
    return node_slo_spec(config_of(reading.texts), node)


def test_ns1_an_empty_configmap_has_the_defaults() -> None:
    assert spec_of({}) == {
        "resourceUsedThresholdWithBE": {
            "enable": False,
            "cpuSuppressThresholdPercent": 65,
            "cpuSuppressPolicy": "cpuset",
            "memoryEvictThresholdPercent": 70,
            "cpuEvictPolicy": "evictByRealLimit",
        },
        "resourceQOSStrategy": {},
        "cpuBurstStrategy": {
            "policy": "none",
            "cpuBurstPercent": 1000,
            "cfsQuotaBurstPercent": 300,
            "cfsQuotaBurstPeriodSeconds": -1,
            "sharePoolThresholdPercent": 50,
        },
        "systemStrategy": {"totalNetworkBandwidth": "0"},
    }


def test_ns2_the_clusters_strategy_takes_precedence_over_the_default() -> None:
    threshold = spec_of({THRESHOLD: {"clusterStrategy": {"enable": True}}})["resourceUsedThresholdWithBE"]
    assert (threshold["enable"], threshold["cpuSuppressThresholdPercent"]) == (True, 65)


def test_ns3_the_first_node_strategy_that_matches_is_in_force() -> None:
    selector = {"nodeSelector": {"matchLabels": {"pool": "a"}}}
    strategies = [selector | {"cpuSuppressThresholdPercent": 50}, selector | {"memoryEvictThresholdPercent": 60}]
    threshold = spec_of({THRESHOLD: {"nodeStrategies": strategies}})["resourceUsedThresholdWithBE"]
    assert (threshold["cpuSuppressThresholdPercent"], threshold["memoryEvictThresholdPercent"]) == (50, 70)


def test_ns4_a_node_strategy_merges_over_the_clusters() -> None:
    strategies = [EVERYWHERE | {"policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPercent": 400}]
    assert spec_of({BURST: {"nodeStrategies": strategies}})["cpuBurstStrategy"] == {
        "policy": "cfsQuotaBurstOnly",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 400,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    }


def test_ns5_nested_objects_merge() -> None:
    document = {
        "clusterStrategy": {"beClass": {"memoryQOS": {"wmarkRatio": 90}}},
        "nodeStrategies": [EVERYWHERE | {"beClass": {"memoryQOS": {"wmarkRatio": 80, "enable": True}}}],
    }
    qos = spec_of({QOS: document})["resourceQOSStrategy"]
    assert qos == {"beClass": {"memoryQOS": {"enable": True, "wmarkRatio": 80}}}


def test_ns6_a_node_strategy_without_a_bandwidth_resets_it() -> None:
    document = {
        "clusterStrategy": {"totalNetworkBandwidth": "10M"},
        "nodeStrategies": [EVERYWHERE | {"watermarkScaleFactor": 150}],
    }
    assert spec_of({SYSTEM: document})["systemStrategy"] == {"watermarkScaleFactor": 150, "totalNetworkBandwidth": "0"}


def test_an_empty_node_strategy_leaves_the_bandwidth() -> None:
    document = {"clusterStrategy": {"totalNetworkBandwidth": "10M"}, "nodeStrategies": [EVERYWHERE]}
    assert spec_of({SYSTEM: document})["systemStrategy"] == {"totalNetworkBandwidth": "10M"}


def test_ns7_the_nodes_annotation_sets_its_bandwidth() -> None:
    node = Metadata(name="n", annotations={BANDWIDTH: "20M"})
    data: dict[str, object] = {SYSTEM: {"clusterStrategy": {"totalNetworkBandwidth": "10M"}}}
    assert spec_of(data, node)["systemStrategy"] == {"totalNetworkBandwidth": "20M"}
    assert "systemStrategy" not in spec_of(data, Metadata(name="n", annotations={BANDWIDTH: "fast"}))


def test_ns8_a_node_strategy_without_applications_has_none() -> None:
    nginx = {"name": "nginx", "priority": "koord-prod", "qos": "LS"}
    assert spec_of({HOST_APPLICATIONS: {"applications": [nginx]}})["hostApplications"] == [nginx]
    data: dict[str, object] = {HOST_APPLICATIONS: {"applications": [nginx], "nodeConfigs": [EVERYWHERE]}}
    assert "hostApplications" not in spec_of(data)


def test_interference_detection_is_an_extension_of_nodes_that_enable_it() -> None:
    document = {
        "clusterStrategy": {"learnSeconds": 60},
        "nodeStrategies": [EVERYWHERE | {"enable": True, "answer": "hint"}],
    }
    found = spec_of({INTERFERENCE: document})["extensions"]["interference"]
    assert (found["enable"], found["learnSeconds"], found["answer"], found["sustainSeconds"]) == (True, 60, "hint", 10)
    assert "extensions" not in spec_of({INTERFERENCE: {"clusterStrategy": {"learnSeconds": 60}}})
    assert "extensions" not in spec_of({})


def test_every_recorded_spec_is_upstreams() -> None:
    for case in recorded("webhook", "renderNodeSLO"):
        texts: dict[str, str] = {}
        for step, expected in zip(case.input["steps"], case.output["steps"], strict=True):
            data = step.get("configMapData")
            texts = read(data, texts, bounds=False).texts if data is not None else {}
            for node in case.input["nodes"]:
                metadata = msgspec.convert(node["metadata"], Metadata)
                found = node_slo_spec(config_of(texts), metadata)
                assert _comparable(found) == _comparable(expected["specs"][metadata.name]), case.case


def _comparable(spec: dict[str, Any]) -> dict[str, Any]:
    """Bandwidths by their value; an empty list of applications as none."""
    spec = {name: part for name, part in spec.items() if part != []}
    if system := spec.get("systemStrategy"):
        spec["systemStrategy"] = system | {"totalNetworkBandwidth": nanos(system["totalNetworkBandwidth"])}
    return spec
