"""The Kubernetes Event about a rejected ConfigMap."""

import pytest

from services.scheduler.service_manifest import CONFIG_MAP as SCHEDULER
from services.slo_controller.service_manifest import CONFIG_MAP as SLO
from shared.domain.config_rejection import event_key, rejection_events
from shared.events import Draft
from shared.events.intents import ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected
from shared.kube.instants import SECOND
from shared.runtime.declared_intents import declared_refusal


def rejected(source: str, path: str = "profiles", reason: str = "empty") -> Draft:
    return Draft(ConfigRejected(source=source, digest="0", path=path, reason=reason))


def desired(*drafts: Draft) -> list[ObjectDesired]:
    found = rejection_events(drafts, uid="u1", component="koordstream/test", now_ns=SECOND)
    return [draft.event for draft in found if isinstance(draft.event, ObjectDesired)]


def test_all_faults_of_one_version_are_one_event_about_the_config_map() -> None:
    (found,) = desired(
        rejected("ConfigMap ns/slo", "colocation-config: enable", "colocation-config: enable is wrong"),
        rejected("ConfigMap ns/slo", "qos", "is wrong"),
    )
    assert found.body
    assert found.body["involvedObject"] == {
        "apiVersion": "v1", "kind": "ConfigMap", "namespace": "ns", "name": "slo", "uid": "u1",
    }  # fmt: skip
    assert found.body["message"] == (
        "rejected, the last good one stays in force: colocation-config: enable is wrong; qos: is wrong"
    )
    assert found.name.startswith("ns/slo.")


def test_what_is_no_rejected_config_map_has_no_event() -> None:
    applied = Draft(ConfigApplied(source="ConfigMap ns/slo", digest="0", text=""))
    assert desired(applied, rejected("file /etc/config.yaml")) == []


@pytest.mark.parametrize(("context", "config_map"), [("scheduling", SCHEDULER), ("slo", SLO)])
def test_a_context_may_write_the_event_about_its_own_config_map_alone(context: str, config_map: str) -> None:
    (found,) = desired(rejected(f"ConfigMap {config_map}"))
    assert found.name == event_key(config_map)
    assert declared_refusal(context, found) == ""
    (other,) = desired(rejected("ConfigMap koordinator-system/other"))
    assert declared_refusal(context, other)
