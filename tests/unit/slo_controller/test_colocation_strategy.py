"""The strategy in force on a node, by the worked examples of spec/slo-controller.md 2.3."""

import json

import pytest
from msgspec.structs import replace

from services.slo_controller.config.colocation_strategy import (
    DEFAULTS,
    effective_strategy,
    first_invalid_field,
    is_overcommitted,
)
from services.slo_controller.config.slo_configmap import config_of, read
from shared.admission.slo_config.document_validation import COLOCATION
from shared.kube.meta import Metadata
from shared.kube.slo_config import ColocationConfig, OvercommitLimits

CPU_RATIO = "node.koordinator.sh/cpu-reclaim-ratio"
STRATEGY = "node.koordinator.sh/colocation-strategy"


def colocation(document: object) -> ColocationConfig:
    return config_of(read({COLOCATION: json.dumps(document)}, {}).texts).colocation


@pytest.mark.parametrize(
    ("id_", "label", "percent"),
    [
        ("L1", "0.65", 65), ("L2", "0.29", 28), ("L3", "0.57", 56), ("L4", "1.15", 114),
        ("L5", "1.5", 150), ("L6", "-0.1", 60), ("L7", "abc", 60), ("L8", "0.555", 55),
    ],
)  # fmt: skip
def test_the_ratio_of_a_label_is_truncated_to_a_percentage(id_: str, label: str, percent: int) -> None:
    node = Metadata(name="n", labels={CPU_RATIO: label})
    assert effective_strategy(colocation({}), node).cpu_reclaim_threshold_percent == percent, id_


def test_e1_a_node_strategy_cannot_enable_what_the_cluster_disables() -> None:
    config = colocation({"enable": False, "nodeConfigs": [{"nodeSelector": {}, "enable": True}]})
    strategy = effective_strategy(config, Metadata(name="n"))
    assert strategy.enable is True
    assert not is_overcommitted(config, strategy)


def test_e2_an_annotation_disables_one_node() -> None:
    config = colocation({"enable": True})
    assert not is_overcommitted(
        config, effective_strategy(config, Metadata(name="n", annotations={STRATEGY: '{"enable": false}'}))
    )
    assert is_overcommitted(config, effective_strategy(config, Metadata(name="m")))


def test_e3_a_label_takes_precedence_over_annotation_node_strategy_and_cluster() -> None:
    config = colocation(
        {
            "cpuReclaimThresholdPercent": 60,
            "nodeConfigs": [{"nodeSelector": {}, "cpuReclaimThresholdPercent": 70}],
        }
    )
    annotations = {STRATEGY: '{"cpuReclaimThresholdPercent": 80}'}
    found = [
        effective_strategy(config, Metadata(name="n")).cpu_reclaim_threshold_percent,
        effective_strategy(config, Metadata(name="n", annotations=annotations)).cpu_reclaim_threshold_percent,
        effective_strategy(
            config, Metadata(name="n", annotations=annotations, labels={CPU_RATIO: "0.9"})
        ).cpu_reclaim_threshold_percent,
    ]
    assert found == [70, 80, 90]


def test_e4_of_two_node_strategies_that_match_the_first_is_in_force() -> None:
    entries = [
        {"nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuReclaimThresholdPercent": 70},
        {"nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuReclaimThresholdPercent": 80, "degradeTimeMinutes": 3},
    ]
    strategy = effective_strategy(colocation({"nodeConfigs": entries}), Metadata(name="n", labels={"pool": "a"}))
    assert (strategy.cpu_reclaim_threshold_percent, strategy.degrade_time_minutes) == (70, 15)


def test_e5_an_invalid_node_strategy_leaves_the_clusters() -> None:
    document = {
        "cpuReclaimThresholdPercent": 61,
        "nodeConfigs": [
            {"name": "a", "nodeSelector": {}, "degradeTimeMinutes": 0, "cpuReclaimThresholdPercent": 70},
        ],
    }
    reading = read({COLOCATION: json.dumps(document)}, {})
    strategy = effective_strategy(config_of(reading.texts).colocation, Metadata(name="n"))
    assert (strategy.cpu_reclaim_threshold_percent, strategy.degrade_time_minutes) == (61, 15)
    assert [str(problem) for problem in reading.problems] == [
        "colocation-config: nodeConfigs[0].degradeTimeMinutes of strategy a is 0; give more than 0"
    ]


def test_an_absent_selector_selects_nothing_and_an_invalid_one_is_skipped() -> None:
    entries = [
        {"cpuReclaimThresholdPercent": 70},
        {
            "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Bogus"}]},
            "cpuReclaimThresholdPercent": 71,
        },
        {"nodeSelector": {}, "cpuReclaimThresholdPercent": 72},
    ]
    strategy = effective_strategy(colocation({"nodeConfigs": entries}), Metadata(name="n"))
    assert strategy.cpu_reclaim_threshold_percent == 72


def test_an_unreadable_annotation_is_ignored() -> None:
    for text in ("xx", "", "null", '{"metricAggregatePolicy": {"durations": ["soon"]}}'):
        assert effective_strategy(colocation({}), Metadata(name="n", annotations={STRATEGY: text})) == DEFAULTS


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        (OvercommitLimits(floor={"cpu": "many"}), ("koordstream.floor.cpu", "many")),
        (
            OvercommitLimits(floor={"cpu": "1"}, cap={"memory": "-7"}),
            ("koordstream.cap.memory", "is -7; give at least 0"),
        ),
        (OvercommitLimits(floor={"cpu": "20"}, cap={"cpu": "5"}), ("koordstream.floor.cpu", "is 20, above the cap")),
        (OvercommitLimits(cap={"gpu": "1"}), ("koordstream.cap.gpu", "bounds nothing; give cpu or memory")),
    ],
)
def test_an_amount_of_the_floor_or_the_cap_that_bounds_nothing_is_invalid(
    limits: OvercommitLimits, found: tuple[str, str]
) -> None:
    invalid = first_invalid_field(replace(DEFAULTS, koordstream=limits))
    assert invalid is not None
    assert invalid[0] == found[0]
    assert found[1] in invalid[1]
    assert first_invalid_field(replace(DEFAULTS, koordstream=OvercommitLimits(floor={"cpu": "1500m"}))) is None
