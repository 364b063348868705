"""Amplified nodes. Source: spec/api.md 5.5."""

from typing import Any

import pytest

from shared.admission.node_amplification import RATIO, amplified
from shared.admission.rejection import AdmissionRejected
from shared.kube.node import RAW_ALLOCATABLE


def node(cpu: str | None = "8", *, ratio: str | None = None, raw: str | None = None) -> dict[str, Any]:
    annotations = {name: text for name, text in ((RATIO, ratio), (RAW_ALLOCATABLE, raw)) if text is not None}
    status = {"allocatable": {"cpu": cpu, "memory": "32Gi"}} if cpu else {}
    return {"metadata": {"name": "n", "annotations": annotations}, "status": status}


def test_the_first_update_keeps_the_kubelets_amounts_and_multiplies_them() -> None:
    found = amplified(node(ratio='{"cpu":1.5}'), node())
    assert found["status"]["allocatable"] == {"cpu": "12", "memory": "32Gi"}
    assert found["metadata"]["annotations"][RAW_ALLOCATABLE] == '{"cpu":"8","memory":"32Gi"}'


def test_new_amounts_of_the_kubelet_replace_the_kept_ones() -> None:
    found = amplified(node("6", ratio='{"cpu":1.5}', raw='{"cpu":"8","memory":"32Gi"}'), node("12"))
    assert found["status"]["allocatable"]["cpu"] == "9"
    same = amplified(node("12", ratio='{"cpu":2}', raw='{"cpu":"8","memory":"32Gi"}'), node("12"))
    assert same["status"]["allocatable"]["cpu"] == "16"


def test_without_a_ratio_no_amounts_are_kept_and_a_ratio_of_one_changes_nothing() -> None:
    assert RAW_ALLOCATABLE not in amplified(node(raw='{"cpu":"8"}'), node())["metadata"]["annotations"]
    assert RAW_ALLOCATABLE not in amplified(node(ratio="", raw='{"cpu":"8"}'), node())["metadata"]["annotations"]
    assert amplified(node(ratio='{"cpu":1,"memory":0.5}'), node())["status"]["allocatable"] == {
        "cpu": "8",
        "memory": "32Gi",
    }


def test_a_node_without_allocatable_and_a_kept_null_stay() -> None:
    assert amplified(node(None, ratio='{"cpu":2}'), node())["status"] == {}
    assert amplified(node(ratio='{"cpu":2}', raw="null"), node())["status"]["allocatable"]["cpu"] == "8"


@pytest.mark.parametrize(("ratio", "raw"), [("bad", None), ('{"cpu":2}', "bad"), ('{"cpu":2}', '{"cpu":"x"}')])
def test_an_annotation_that_cannot_be_read_is_an_error(ratio: str, raw: str | None) -> None:
    with pytest.raises(AdmissionRejected, match="node n: annotation"):
        amplified(node(ratio=ratio, raw=raw), node())
