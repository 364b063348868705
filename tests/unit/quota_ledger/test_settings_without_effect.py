"""Labels, annotations and resources of an ElasticQuota that have no effect are shown where people look: on the object,
in the list of quotas, in `koord explain quota` and in `koord doctor`.
"""

import pytest

from cli.doctor.check_quotas import about_ignored_quota_settings
from cli.quota.render import ignored, notes_about
from services.quota_ledger.decide.kubernetes_events_about_quotas import object_events
from services.quota_ledger.state.ledger_state import LedgerState
from shared.events.cluster import ObjectObserved
from shared.events.quota import QuotaUpdated
from shared.kube.elastic_quota import ANNOTATIONS, LABELS, OF_OTHER_KINDS, PREFIX, settings_without_effect
from tests.support.quota_logs import Logs, node, quota

VALUES = {"total-resource": "{}", "shared-weight": "{}", "namespaces": "[]"}


def of(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> tuple[str, ...]:
    metadata = {
        "labels": {PREFIX + key: value for key, value in (labels or {}).items()} | {"team": "a"},
        "annotations": {PREFIX + key: value for key, value in (annotations or {}).items()} | {"koordinator.sh/x": "1"},
    }
    return settings_without_effect(metadata)


def test_every_known_key_in_its_place_passes() -> None:
    assert of(dict.fromkeys(LABELS, "x"), {key: VALUES.get(key, "x") for key in ANNOTATIONS}) == ()


@pytest.mark.parametrize(
    ("labels", "annotations", "text"),
    [
        (
            {"is-parnet": "true"},
            {},
            f"label {PREFIX}is-parnet is unknown, and has no effect; perhaps the label 'is-parent' is meant",
        ),
        (
            {"Parent": "a"},
            {},
            f"label {PREFIX}Parent is unknown, and has no effect; perhaps the label 'parent' is meant",
        ),
        (
            {},
            {"shared-wieght": "{}"},
            f"annotation {PREFIX}shared-wieght is unknown, and has no effect; perhaps the annotation 'shared-weight' is meant",
        ),
        (
            {},
            {"alow-lent": "false"},
            f"annotation {PREFIX}alow-lent is unknown, and has no effect; perhaps the label 'allow-lent-resource' is meant",
        ),
        ({"colour": "red"}, {}, f"label {PREFIX}colour is unknown, and has no effect"),
        ({}, {"parent": "a"}, f"annotation {PREFIX}parent has no effect; it is read from the label of that name"),
        (
            {"namespaces": "a"},
            {},
            f"label {PREFIX}namespaces has no effect; it is read from the annotation of that name",
        ),
        ({"preemptible": "false"}, {}, f"label {PREFIX}preemptible has no effect on a quota; it belongs on pods"),
        (
            {},
            {"resource-keys": "[]"},
            f"annotation {PREFIX}resource-keys has no effect on a quota; it belongs on an ElasticQuotaProfile",
        ),
    ],
)
def test_a_key_without_effect_is_named_with_what_was_probably_meant(
    labels: dict[str, str], annotations: dict[str, str], text: str
) -> None:
    assert of(labels, annotations) == (text,)


def test_of_many_keys_without_effect_the_first_are_named_and_the_others_counted() -> None:
    found = of({f"x{number:03}": "" for number in range(900)})
    assert [text.split()[1] for text in found[:-1]] == [f"{PREFIX}x00{number}" for number in range(5)]
    assert found[-1] == f"895 more labels and annotations of {PREFIX} have no effect"


def test_no_key_is_both_of_a_quota_and_of_another_kind() -> None:
    assert not set(OF_OTHER_KINDS) & {*LABELS, *ANNOTATIONS}
    assert not set(LABELS) & set(ANNOTATIONS)


def misspelt(label: str) -> ObjectObserved:
    found = quota("web", "1", "4")
    found.object["metadata"]["labels"] = {PREFIX + label: "true"}
    return found


def test_a_max_of_a_resource_that_no_pod_can_request_is_seen_wherever_quotas_are() -> None:
    logs, misspelt_max = Logs(), quota("web", "1", "4")
    misspelt_max.object["spec"]["max"] = {
        "cpu": "5",
        "memroy": "5Gi",
        "pods": "3",
        "hugepages-2Mi": "1Gi",
        "a.b/c": "1",
    }
    logs.append("cluster", node("n1", "10"), misspelt_max)
    text = "max of 'memroy' limits nothing, since no pod can request it; perhaps 'memory' is meant"
    [fault] = ignored(logs.state.projection)
    assert fault.text == f"Quota web: {text}"
    assert [*notes_about(logs.state.projection, "web")] == [f"Ignored: {text}"]
    [draft] = object_events(logs.state, logs.now_ns)
    assert (getattr(draft.event, "body", None) or {})["message"] == text
    logs.append("cluster", quota("web", "1", "4"))
    assert [*ignored(logs.state.projection)] == []


def test_a_misspelt_label_is_seen_wherever_quotas_are_until_it_is_corrected() -> None:
    logs = Logs()
    logs.append("cluster", node("n1", "10"), misspelt("is-parnet"))
    text = f"label {PREFIX}is-parnet is unknown, and has no effect; perhaps the label 'is-parent' is meant"
    [fault] = ignored(logs.state.projection)
    assert fault.text == f"Quota web: {text}"
    assert [*notes_about(logs.state.projection, "web")] == [f"Ignored: {text}"]
    [finding] = about_ignored_quota_settings([fault])
    assert (finding.what, finding.severity) == (fault.text, "warning")
    [draft] = object_events(logs.state, logs.now_ns)
    body = getattr(draft.event, "body", None) or {}
    assert (body["reason"], body["message"]) == ("SettingsIgnored", text)
    again = LedgerState()
    again.restore(logs.state.encode())
    assert [*ignored(again.projection)] == [fault], "kept in snapshots"
    [updated] = [event for event in logs.append("cluster", misspelt("is-parent")) if isinstance(event, QuotaUpdated)]
    assert (updated.declared.ignored, updated.declared.is_parent) == ((), True)
    assert [*ignored(logs.state.projection)] == []
