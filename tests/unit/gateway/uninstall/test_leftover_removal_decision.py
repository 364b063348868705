"""Objects that are deleted, freed of fields or kept when the system leaves a cluster."""

from typing import Any

from services.gateway.kube_api.resources import RESOURCES
from services.gateway.uninstall.field_ownership import describe, removals
from services.gateway.uninstall.leftover_removal_decision import STAYS, Search, leftover, quotas_in_use, searches
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS, NODE_TOPOLOGIES, QUOTAS
from shared.runtime.declared_intents import DECLARED

OURS, KUBECTL = "koordstream", "kubectl-edit"
PARENT, POD_QUOTA = "quota.scheduling.koordinator.sh/parent", "quota.scheduling.koordinator.sh/name"


def written(fields: dict[str, Any], manager: str = OURS, subresource: str = "") -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": fields}


def body(*entries: dict[str, Any], name: str = "x", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "managedFields": list(entries)} | more.pop("metadata", {})
    return {"metadata": metadata} | more


def search(resource: str, *, creates: bool = True) -> Search:
    return Search(RESOURCES[resource], creates)


def test_every_resource_that_a_service_writes_is_searched_or_stays_on_purpose() -> None:
    written_resources = {
        right.resource
        for rights in DECLARED.values()
        for right in rights
        if right.intent in (FieldsDesired, ObjectDesired)
    }
    assert written_resources - STAYS <= {each.resource.name for each in searches("koordinator-system/certs")}


def test_an_object_of_this_system_alone_is_deleted() -> None:
    found = leftover(search(NODE_SLOS), body(written({"f:spec": {"f:a": {}}}), spec={"a": 1}), {})
    assert found is not None
    assert found.action == "delete"


def test_an_object_without_our_fields_is_not_mentioned() -> None:
    assert leftover(search(NODE_SLOS), body(written({"f:spec": {"f:a": {}}}, KUBECTL), spec={"a": 1}), {}) is None


def test_a_node_metric_that_was_applied_without_fields_is_deleted_although_no_manager_is_recorded() -> None:
    (metrics,) = (each for each in searches("koordinator-system/certs") if each.resource.name == NODE_METRICS)
    found = leftover(metrics, body(status={"updateTime": "2026-01-01T00:00:00Z"}), {})
    assert found is not None
    assert found.action == "delete"
    (slos,) = (each for each in searches("koordinator-system/certs") if each.resource.name == NODE_SLOS)
    assert leftover(slos, body(), {}) is None


def test_of_an_object_that_others_wrote_too_only_our_fields_are_removed() -> None:
    node = body(
        written({"f:status": {"f:allocatable": {"f:kubernetes.io/batch-cpu": {}}}}, subresource="status"),
        written({"f:status": {"f:allocatable": {"f:cpu": {}}}}, "kubelet", "status"),
        status={"allocatable": {"cpu": "4", "kubernetes.io/batch-cpu": "1000", "of.nobody/known": "1"}},
    )
    found = leftover(search("nodes", creates=False), node, {})
    assert found is not None
    assert (found.action, found.detail) == ("remove fields", "status.allocatable: kubernetes.io/batch-cpu")
    assert found.patches == {"status": {"status": {"allocatable": {"kubernetes.io/batch-cpu": None}}}}


def test_a_field_that_another_manager_owns_too_stays() -> None:
    same: dict[str, Any] = {"f:metadata": {"f:labels": {"f:a": {}}}}
    assert removals(body(written(same), written(same, KUBECTL), metadata={"labels": {"a": "1"}})) == {}


def test_a_map_that_we_made_goes_with_its_last_field_and_stays_with_fields_of_others() -> None:
    made = written({"f:metadata": {"f:annotations": {".": {}, "f:a": {}}}})
    alone = body(made, metadata={"annotations": {"a": "1"}})
    assert removals(alone) == {"": {"metadata": {"annotations": None}}}
    beside = body(made, metadata={"annotations": {"a": "1", "b": "2"}})
    assert removals(beside) == {"": {"metadata": {"annotations": {"a": None}}}}
    emptied = body(written({"f:metadata": {"f:annotations": {".": {}}}}), metadata={"annotations": {"b": "2"}})
    assert removals(emptied) == {}, "a second run finds nothing"


def test_our_condition_of_a_waiting_pod_goes_and_those_of_others_stay() -> None:
    ready, ours = {"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "False"}
    condition: dict[str, Any] = {"f:conditions": {'k:{"type":"PodScheduled"}': {".": {}, "f:status": {}, "f:type": {}}}}
    pod = body(written({"f:status": condition}, subresource="status"), status={"conditions": [ready, ours]})
    assert removals(pod) == {"status": {"status": {"conditions": [ready]}}}
    assert describe(removals(pod)) == "status: items of conditions"


def test_the_zones_of_another_client_keep_its_resources() -> None:
    cpu, batch = {"name": "cpu", "capacity": "8"}, {"name": "kubernetes.io/batch-cpu", "capacity": "1000"}
    zones = [{"name": "node-0", "resources": [cpu, batch]}]
    topology = body(written({"f:zones": {}}), written({"f:topologyPolicies": {}}, "koordlet"), zones=zones)
    found = leftover(search(NODE_TOPOLOGIES), topology, {})
    assert found is not None
    assert found.patches == {"": {"zones": [{"name": "node-0", "resources": [cpu]}]}}
    clean = body(*topology["metadata"]["managedFields"], zones=[{"name": "node-0", "resources": [cpu]}])
    assert leftover(search(NODE_TOPOLOGIES), clean, {}) is None


def test_a_quota_that_a_users_quota_or_pod_needs_is_kept_and_one_that_a_user_changed() -> None:
    root = body(written({"f:spec": {"f:min": {"f:cpu": {}}}}), name="root", spec={"min": {"cpu": "8"}})
    child = body(written({}, KUBECTL), name="team", metadata={"namespace": "ns", "labels": {PARENT: "root"}})
    pod = body(name="p", metadata={"namespace": "ns", "labels": {POD_QUOTA: "root"}})
    for needed in (quotas_in_use([root, child], []), quotas_in_use([root], [pod])):
        found = leftover(search(QUOTAS), root, needed)
        assert found is not None
        assert found.action == "keep"
    assert "ns/team names it as its parent" in quotas_in_use([root, child], [])["root"]
    unused = leftover(search(QUOTAS), root, quotas_in_use([root], []))
    assert unused is not None
    assert unused.action == "delete"
    edited = body(*root["metadata"]["managedFields"], written({"f:metadata": {}}, KUBECTL), spec=root["spec"])
    changed = leftover(search(QUOTAS), edited, {})
    assert changed is not None
    assert changed.action == "keep"
