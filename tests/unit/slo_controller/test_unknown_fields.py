"""Names in slo-controller-config that nothing reads."""

import json
from typing import Any

import pytest

from services.slo_controller.config.unknown_fields import unknown_documents, unknown_parts
from shared.admission.slo_config.document_validation import COLOCATION, DOCUMENTS, HOST_APPLICATIONS, QOS, THRESHOLD


def parts(**documents: Any) -> list[str]:
    return list(unknown_parts(json.dumps({key.replace("_", "-"): json.dumps(each) for key, each in documents.items()})))


@pytest.mark.parametrize(
    ("key", "document", "found"),
    [
        (COLOCATION, {"enabel": True}, "enabel has no effect; perhaps 'enable' is meant"),
        (COLOCATION, {"Enable": True}, "Enable has no effect; perhaps 'enable' is meant"),
        (
            COLOCATION,
            {"nodeConfigs": [{"name": "a"}, {"nodeSelector": {"matchLabel": {}}}]},
            "nodeConfigs[1].nodeSelector.matchLabel has no effect; perhaps 'matchLabels' is meant",
        ),
        (
            QOS,
            {"clusterStrategy": {"beClass": {"cpuQOS": {"groupIdentiti": 1}}}},
            "clusterStrategy.beClass.cpuQOS.groupIdentiti has no effect; perhaps 'groupIdentity' is meant",
        ),
        (THRESHOLD, {"zzz": 1}, "zzz has no effect"),
    ],
)
def test_an_unknown_field_is_named_with_its_path(key: str, document: Any, found: str) -> None:
    assert parts(**{key: document}) == [f"{key}: {found}"]


def test_known_fields_and_free_maps_are_not_named() -> None:
    document = {
        "enable": True,
        "extensions": {"anything": {"goes": 1}},
        "nodeConfigs": [{"name": "a", "nodeSelector": {"matchLabels": {"any": "label"}}, "midCPUThresholdPercent": 1}],
        "koordstream": {"floor": {"cpu": "1"}},
    }
    assert parts(**{COLOCATION: document}) == []
    assert list(unknown_parts("")) == []


def test_an_unknown_key_is_named_unless_it_is_a_comment() -> None:
    found = list(unknown_documents([*DOCUMENTS, "colocation-confg", "_example"]))
    assert found == ["key colocation-confg has no effect; perhaps 'colocation-config' is meant"]


def test_a_text_that_counts_as_the_default_is_named_with_those_there_are() -> None:
    document = {"cpuCalculatePolicy": "usge", "nodeConfigs": [{"name": "a", "midReclaimMode": "statc"}]}
    assert parts(**{COLOCATION: document}) == [
        f"{COLOCATION}: cpuCalculatePolicy is 'usge', which has no effect; give one of maxUsageRequest, usage",
        f"{COLOCATION}: nodeConfigs[0].midReclaimMode is 'statc', which has no effect; give static",
    ]
    application = {"name": "nginx", "priority": "koord-prodd", "qos": "LX"}
    assert [each.partition(";")[0] for each in parts(**{HOST_APPLICATIONS: {"applications": [application]}})] == [
        f"{HOST_APPLICATIONS}: applications[0].priority is 'koord-prodd', which has no effect",
        f"{HOST_APPLICATIONS}: applications[0].qos is 'LX', which has no effect",
    ]
