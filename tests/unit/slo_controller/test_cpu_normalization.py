"""Normalization and amplification, by the worked examples of spec/slo-controller.md 6.1 and 6.2."""

import json
from typing import Any

import pytest

from services.slo_controller.config.slo_configmap import config_of, read
from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import NORMALIZATION_RATIO
from services.slo_controller.overcommit.cpu_normalization import ENABLED, RatioError, normalization_ratio, ratio_changed
from services.slo_controller.overcommit.resource_amplification import amplification_ratios
from shared.admission.slo_config.document_validation import AMPLIFICATION, NORMALIZATION
from shared.kube.meta import Metadata
from shared.kube.node_resource_topology import CPU_BASIC_INFO

MODEL = {
    "baseRatio": 1.5, "hyperThreadEnabledRatio": 1.0, "turboEnabledRatio": 1.8, "hyperThreadTurboEnabledRatio": 1.2,
}  # fmt: skip


def ratio(*on: str, label: str | None = None, model: str = "M", **configured: Any) -> str:
    document = {"enable": True, "ratioModel": {"M": MODEL}} | configured
    config = config_of(read({NORMALIZATION: json.dumps(document)}, {}).texts).normalization
    info = {"cpuModel": model, "hyperThreadEnabled": "ht" in on, "turboEnabled": "turbo" in on}
    node = Metadata(name="n", labels=None if label is None else {ENABLED: label})
    return normalization_ratio(config, node, {CPU_BASIC_INFO: json.dumps(info)})


def test_the_ratio_of_a_model_by_hyper_threads_and_turbo() -> None:
    assert ratio("ht", "turbo") == "1.20", "CN1"
    assert ratio("ht") == "1.00", "CN2"
    assert ratio() == "1.50", "CN3"
    assert ratio("turbo") == "1.80"


def test_cn4_a_model_that_is_not_listed_has_the_default_ratio() -> None:
    assert ratio(model="X", defaultRatio=1.1) == "1.10"
    with pytest.raises(RatioError, match="'X'"):
        ratio(model="X")


@pytest.mark.parametrize(("base", "expected"), [(0.9, None), (5.01, None), (5.0, "5.00")])
def test_cn5_a_ratio_lies_between_1_and_5(base: float, expected: str | None) -> None:
    if expected:
        assert ratio(ratioModel={"M": {"baseRatio": base}}) == expected
        return
    with pytest.raises(RatioError, match=str(base)):
        ratio(ratioModel={"M": {"baseRatio": base}})


def test_a_label_switches_one_node() -> None:
    assert ratio(label="false") == "1.00", "CN6"
    assert ratio(label="t", enable=False) == "1.50"
    with pytest.raises(RatioError, match="maybe"):
        ratio(label="maybe")


def test_a_node_with_an_unknown_cpu_has_no_ratio() -> None:
    config = config_of(read({NORMALIZATION: '{"enable": true}'}, {}).texts).normalization
    with pytest.raises(RatioError, match=CPU_BASIC_INFO):
        normalization_ratio(config, Metadata(name="n"), None)


def test_cn8_a_ratio_within_the_tolerance_is_not_written() -> None:
    assert [ratio_changed("1.20", new) for new in ("1.20", "1.21", "1.22", None)] == [False, False, True, True]
    assert ratio_changed("fast", "1.00")
    assert ratio_changed(None, "1.00")
    assert not ratio_changed(None, None)


def amplified(ratios: dict[str, float] | None, speed: str | None) -> str | None:
    document = {"enable": ratios is not None, "resourceAmplificationRatio": ratios or {}}
    config = config_of(read({AMPLIFICATION: json.dumps(document)}, {}).texts).amplification
    annotations = None if speed is None else {NORMALIZATION_RATIO: speed}
    return amplification_ratios(config, Metadata(name="n", annotations=annotations))


@pytest.mark.parametrize(
    ("id_", "ratios", "speed", "expected"),
    [
        ("RA1", None, "1.20", '{"cpu":1.20}'),
        ("RA2", {"cpu": 1.5, "memory": 1.5}, "1.2", '{"cpu":1.80,"memory":1.50}'),
        ("RA3", {"cpu": 1.0}, None, '{"cpu":1.00}'),
        ("RA4", {"cpu": 0.9}, "1.2", '{"cpu":1.08}'),
        ("RA6", None, "1.00", None),
    ],
)
def test_amplification(id_: str, ratios: dict[str, float] | None, speed: str | None, expected: str | None) -> None:
    assert amplified(ratios, speed) == expected, id_


@pytest.mark.parametrize(("id_", "ratios", "speed"), [("RA5", {"cpu": 0.5}, "1.2"), ("RA7", {"memory": 0.8}, None)])
def test_a_ratio_below_1_is_rejected(id_: str, ratios: dict[str, float], speed: str | None) -> None:
    with pytest.raises(RatioError, match="at least 1"):
        amplified(ratios, speed)
