"""Of several ElasticQuotas of one name, in different namespaces, the oldest is followed; the others are rejected by name.

The webhook admits the first alone; without it the ledger has to choose, and shows what it does not follow.
"""

import itertools
from typing import Any

import msgspec
import pytest

from cli.doctor.check_quotas import about_rejected_quotas
from cli.quota.render import notes_about, rejected
from services.quota_ledger.accounting.opening_balances_after_retention import entries_of
from services.quota_ledger.accounting.verify_invariants_by_replay import verify
from services.quota_ledger.decide.kubernetes_events_about_quotas import object_events
from services.quota_ledger.state.ledger_state import LedgerState
from services.scheduler.state.quota_view import QuotaView
from shared.events import Event
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.intents import ObjectDesired
from shared.events.quota import QuotaRejected, QuotaUpdated
from shared.kube.elastic_quota import PREFIX, RESERVED, RESOURCES
from shared.runtime.declared_intents import declared_refusal
from tests.support.quota_logs import Logs, node, pod, quota
from tests.support.scheduling_world import placements, unschedulable
from tests.support.scheduling_world import pod as scheduled_pod
from tests.unit.scheduler.scheduler_with_ledger import Teams

DEV, PROD = "2026-05-01T10:00:00Z", "2026-05-01T11:00:00Z"


def team(namespace: str, max_cpu: str, created: str, name: str = "team", **annotations: str) -> ObjectObserved:
    found = quota(name, "1", max_cpu)
    metadata = found.object["metadata"]
    metadata |= {"namespace": namespace, "uid": f"{namespace}-{created}", "creationTimestamp": created}
    metadata["annotations"] = {PREFIX + key: text for key, text in annotations.items()}
    return ObjectObserved(resource=found.resource, name=f"{namespace}/{name}", uid=metadata["uid"], object=found.object)


def gone(namespace: str, name: str = "team") -> ObjectDeleted:
    return ObjectDeleted(resource=RESOURCES[0], name=f"{namespace}/{name}", uid="any")


def logs_with(*events: Event) -> Logs:
    logs = Logs()
    logs.append("cluster", node("n1", "10"), *events)
    return logs


def max_of(logs: Logs, name: str = "team") -> dict[str, int]:
    return logs.state.projection.lookup.quotas[name].max


OLDER, NEWER = team("dev", "4", DEV), team("prod", "8", PROD)
KEY = f"{RESOURCES[0]}/prod/team"


@pytest.mark.parametrize("order", [(OLDER, NEWER), (NEWER, OLDER)])
def test_the_older_object_has_the_name_in_whatever_order_they_are_read(order: tuple[Event, ...]) -> None:
    logs = logs_with(*order)
    assert max_of(logs) == {"cpu": 4000}
    [(line, name, namespace, resource)] = rejected(logs.state.projection)
    assert (name, namespace, resource) == ("team", "prod", RESOURCES[0])
    [on_kubernetes] = about_rejected_quotas(list(rejected(logs.state.projection)))
    assert on_kubernetes.do.startswith(f"correct it: `kubectl edit {RESOURCES[0]} team -n prod`;")
    [on_simulator] = about_rejected_quotas(list(rejected(logs.state.projection)), simulated=True)
    assert on_simulator.do.startswith(f"correct it: `koord dev patch {RESOURCES[0]} team PATCH -n prod`;")
    assert line.startswith("ElasticQuota prod/team is rejected: quota team: quota names count in all namespaces")
    assert "ElasticQuota dev/team, which is older, has this one" in line
    assert "create this one under another name" in line
    assert [*notes_about(logs.state.projection, "team")] == [line]
    assert logs.append("cluster", NEWER) == [], "recorded once"


def test_the_remedy_names_the_object_of_a_quota_that_never_was_valid() -> None:
    bad = team("dev", "many", DEV)
    guide = msgspec.structs.replace(team("shop", "many", DEV, "web"), resource=RESOURCES[1])
    logs, view = logs_with(NEWER, bad, guide), QuotaView()
    assert logs.state.projection.lookup.quotas.keys() == set(RESERVED)
    for event in (NEWER, bad, guide):
        view.observe(f"{event.resource}/{event.name}", event.object)
    faults = list(rejected(logs.state.projection, view.objects_by_name()))
    assert [(fault.resource, fault.namespace, fault.name) for fault in faults] == [
        (RESOURCES[0], "dev", "team"),
        (RESOURCES[1], "shop", "web"),
        (RESOURCES[0], "prod", "team"),
    ]
    remedies = [finding.do for finding in about_rejected_quotas(faults)]
    assert remedies[0].startswith(f"correct it: `kubectl edit {RESOURCES[0]} team -n dev`;")
    assert remedies[1].startswith(f"correct it: `kubectl edit {RESOURCES[1]} web -n shop`;")
    view.lose(f"{RESOURCES[0]}/{bad.name}")
    assert view.objects_by_name() == {"team": [KEY], "web": [f"{RESOURCES[1]}/shop/web"]}


def test_the_rejection_of_the_quota_itself_is_shown_beside_that_of_another_object_of_its_name() -> None:
    logs = logs_with(OLDER, NEWER, team("dev", "many", DEV))
    own, other = notes_about(logs.state.projection, "team")
    assert own.startswith("Quota team is rejected, and its last valid declaration stays in force: max of cpu: 'many'")
    assert other.startswith("ElasticQuota prod/team is rejected: ")


def test_of_two_of_the_same_second_the_first_by_name_is_followed() -> None:
    logs = logs_with(team("prod", "8", DEV), team("dev", "4", DEV))
    assert max_of(logs) == {"cpu": 4000}
    assert "first by name of those created in the same second" in logs.state.projection.duplicates["team"][KEY]


def test_the_newer_takes_its_place_once_the_older_is_deleted() -> None:
    logs = logs_with(OLDER, NEWER, pod("p1", "team", "2", at="n1"))
    events = logs.append("cluster", gone("dev"))
    assert QuotaRejected(quota="team", object=KEY) in events
    [updated] = [event for event in events if isinstance(event, QuotaUpdated)]
    assert updated.declared.namespace == "prod"
    assert max_of(logs) == {"cpu": 8000}
    assert logs.state.projection.duplicates == {}
    assert logs.state.projection.trees[""].quotas["team"].used == {"cpu": 2000}, "its pods stay with the name"
    assert verify(logs.records).findings == []


def test_an_object_that_returns_is_the_newer_one() -> None:
    logs = logs_with(OLDER, NEWER, gone("dev"), team("dev", "4", "2026-05-01T12:00:00Z"))
    assert max_of(logs) == {"cpu": 8000}
    assert f"{RESOURCES[0]}/dev/team" in logs.state.projection.duplicates["team"]


def test_the_oldest_has_the_name_even_where_it_is_rejected_itself() -> None:
    bad = team("dev", "many", DEV)
    logs = logs_with(NEWER, bad)
    assert "many" in logs.state.projection.rejected["team"]
    assert KEY in logs.state.projection.duplicates["team"]
    logs.append("cluster", gone("dev"))
    assert max_of(logs) == {"cpu": 8000}
    assert logs.state.projection.rejected == {}


def test_the_state_follows_from_the_objects_that_are_there_and_a_rebuilt_one_equals_it() -> None:
    """All orders of two objects, of which one is deleted and created again."""
    later = team("prod", "9", "2026-05-01T12:00:00Z")
    ends = set()
    for order in itertools.permutations((OLDER, NEWER, gone("prod"), later)):
        if order.index(gone("prod")) > order.index(later) or order.index(NEWER) > order.index(gone("prod")):
            continue
        logs = logs_with(*order)
        assert max_of(logs) == {"cpu": 4000}
        again = LedgerState()
        again.restore(logs.state.encode())
        assert again.encode() == logs.state.encode()
        assert again.quotas_to_update == logs.state.quotas_to_update == {}
        rebuilt = LedgerState()
        for record in logs.records:
            rebuilt.apply(record)
        assert rebuilt.encode() == logs.state.encode()
        ends.add(tuple(sorted(logs.state.projection.duplicates["team"])))
    assert ends == {(KEY,)}


def test_opening_balances_keep_what_is_rejected() -> None:
    logs = logs_with(OLDER, NEWER)
    opened = logs.state.projection.empty()
    for entry in entries_of(logs.state.projection):
        opened.fold(entry)
    assert opened.duplicates == logs.state.projection.duplicates


def intents(logs: Logs) -> dict[str, ObjectDesired]:
    """Appends and returns the intents for Kubernetes Events, by the object that each is about; '' for a deletion."""
    found = {}
    for draft in object_events(logs.state, logs.now_ns):
        assert isinstance(draft.event, ObjectDesired)
        assert declared_refusal("quota", draft.event) == ""
        about = (draft.event.body or {}).get("involvedObject", {})
        found[f"{about['namespace']}/{about['name']}" if about else ""] = draft.event
        logs.append("quota", draft.event)
    return found


def test_a_kubernetes_event_on_the_rejected_object_names_the_reason_until_it_is_followed() -> None:
    logs = logs_with(OLDER, NEWER)
    written = intents(logs)
    assert written.keys() == {"prod/team"}
    body: dict[str, Any] = written["prod/team"].body or {}
    assert (body["type"], body["reason"]) == ("Warning", "QuotaRejected")
    assert "ElasticQuota dev/team, which is older" in body["message"]
    assert body["involvedObject"]["uid"] == f"prod-{PROD}"
    assert written["prod/team"].name.startswith("prod/koordstream-quota.")
    assert intents(logs) == {}, "once"
    again = LedgerState()
    again.restore(logs.state.encode())
    assert object_events(again, logs.now_ns) == []
    logs.append("cluster", gone("dev"))
    assert intents(logs)[""].name == written["prod/team"].name
    assert intents(logs) == {}


def test_rejected_quotas_and_ignored_annotations_get_a_kubernetes_event_too() -> None:
    logs = logs_with(team("dev", "many", DEV), team("dev", "4", DEV, "web", namespaces="shop, web"))
    written = intents(logs)
    assert "rejected, and its pods wait: quota team: max of cpu: 'many'" in (written["dev/team"].body or {})["message"]
    ignored = written["dev/web"].body or {}
    assert ignored["reason"] == "SettingsIgnored"
    assert "namespaces is 'shop, web' and binds no namespace; give a JSON list" in ignored["message"]
    [line] = notes_about(logs.state.projection, "web")
    assert line.startswith("Ignored: annotation quota.scheduling.koordinator.sh/namespaces is 'shop, web'")
    logs.append("cluster", team("dev", "4", DEV, "web", namespaces='["shop"]'), team("dev", "4", DEV))
    assert intents(logs).keys() == {""}
    assert [*notes_about(logs.state.projection, "web")] == []


def test_pods_of_the_namespace_of_a_rejected_object_wait_and_do_not_pass_without_a_limit() -> None:
    """A quota of the namespace's name, in it, that an older one of another namespace keeps out."""
    world = Teams(team("dev", "4", DEV, "d"), team("d", "8", PROD, "d"))
    world.add_pod(scheduled_pod("web", cpu="1"))
    world.read()
    recorded = world.cycle()
    assert placements(recorded) == {}
    assert "its quota d is rejected, and it waits: quota d: quota names" in unschedulable(recorded)["web"].message
