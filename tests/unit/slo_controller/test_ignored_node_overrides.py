"""Overrides of a node's strategy that are ignored are named."""

import pytest

from services.slo_controller.config.colocation_strategy import ANNOTATION
from services.slo_controller.config.ignored_node_overrides import ignored_overrides
from shared.kube.meta import Metadata

RATIO = "node.koordinator.sh/cpu-reclaim-ratio"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"cpuReclaimThresholdPercent": "80"}', "cannot be read, and is ignored: cpuReclaimThresholdPercent"),
        ("{cpuReclaimThresholdPercent: 80}", "cannot be read, and is ignored: "),
        (
            '{"cpuReclaimThresholdPercnt": 80}',
            "cpuReclaimThresholdPercnt has no effect; perhaps 'cpuReclaimThresholdPercent' is meant",
        ),
    ],
)
def test_an_annotation_that_cannot_be_read_or_has_an_unknown_field_is_named(text: str, fault: str) -> None:
    [found] = ignored_overrides(Metadata(name="n", annotations={ANNOTATION: text}))
    assert found.startswith(f"annotation {ANNOTATION}")
    assert fault in found


@pytest.mark.parametrize("text", ["70%", "70", "-0.1", "", "nan"])
def test_a_ratio_that_is_ignored_is_named(text: str) -> None:
    assert list(ignored_overrides(Metadata(name="n", labels={RATIO: text}))) == [
        f"label {RATIO} is {text!r}, and is ignored; give a ratio from 0 to 10, such as 0.7"
    ]


def test_what_is_read_is_not_named() -> None:
    annotations = {ANNOTATION: '{"cpuReclaimThresholdPercent": 80}'}
    assert list(ignored_overrides(Metadata(name="n", labels={RATIO: "1.2"}, annotations=annotations))) == []
    assert list(ignored_overrides(Metadata(name="n"))) == []
