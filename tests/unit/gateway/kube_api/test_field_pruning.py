"""Fields that are kept of an object, and fields that change without an event."""

import copy
from typing import Any

import msgspec
import pytest

from services.gateway.known_objects import digest_of
from services.gateway.kube_api.decoding import Decoder
from services.gateway.kube_api.resources import RESOURCES
from services.gateway.kube_api.unused_field_removal import keep_fields
from shared.kube.kept_annotations import keeps
from tests.support import gateway_objects


def test_pods_of_one_template_have_equal_specs_apart_from_the_node() -> None:
    one, two = gateway_objects.pod("web-0", node="n1"), gateway_objects.pod("web-1", node="n2")
    two["spec"]["volumes"][0] = copy.deepcopy(gateway_objects.TOKEN_VOLUME) | {"name": "kube-api-access-zz9qq"}
    specs = [msgspec.structs.replace(gateway_objects.kept("pods", body).spec, node_name="") for body in (one, two)]
    assert msgspec.json.encode(specs[0]) == msgspec.json.encode(specs[1])


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod["metadata"].update(resourceVersion="9", generation=4),
        lambda pod: pod["metadata"]["managedFields"].append({"manager": "kubelet"}),
        lambda pod: pod["metadata"]["annotations"].update({"cni.projectcalico.org/podIP": "10.0.0.8/32"}),
        lambda pod: pod["spec"]["containers"][0].update(env=[]),
        lambda pod: pod["status"].update(podIP="10.0.0.8", containerStatuses=[{"name": "main", "ready": True}]),
        lambda pod: pod["status"].update(
            containerStatuses=[{"name": "main", "state": {"running": {"startedAt": "x"}}}]
        ),
    ],
)
def test_a_change_of_a_dropped_field_keeps_the_digest(change: Any) -> None:
    before, after = gateway_objects.pod(), gateway_objects.pod()
    change(after)
    assert digest_of(gateway_objects.kept("pods", before)) == digest_of(gateway_objects.kept("pods", after))


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod["metadata"]["labels"].update({"koordinator.sh/priority": "5300"}),
        lambda pod: pod["metadata"]["annotations"].update({"scheduling.koordinator.sh/device-allocated": "{}"}),
        lambda pod: pod["metadata"].update(deletionTimestamp="2026-05-01T20:07:00Z"),
        lambda pod: pod["spec"].update(nodeName="n1"),
        lambda pod: pod["status"].update(
            conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        ),
    ],
)
def test_a_change_of_a_kept_field_changes_the_digest(change: Any) -> None:
    before, after = gateway_objects.pod(), gateway_objects.pod()
    change(after)
    assert digest_of(gateway_objects.kept("pods", before)) != digest_of(gateway_objects.kept("pods", after))


def test_a_kubelets_heartbeat_keeps_the_digest() -> None:
    seen = [
        gateway_objects.seen("nodes", gateway_objects.node(heartbeat=at))
        for at in ("2026-05-01T20:00:00Z", "2026-05-01T20:00:10Z")
    ]
    assert seen[0].object == seen[1].object


def test_times_of_probes_are_not_kept() -> None:
    condition = {"type": "Ready", "status": "True", "lastProbeTime": "2026-05-01T20:00:00Z"}
    kept = gateway_objects.kept("pods", gateway_objects.pod(status={"conditions": [condition]}))
    assert b"lastProbeTime" not in msgspec.json.encode(kept)


def test_only_volumes_with_a_claim_and_ports_of_the_host_are_kept() -> None:
    body = gateway_objects.pod()
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}
    body["spec"]["volumes"] += [claim, {"name": "config", "configMap": {"name": "web"}}]
    body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 443}]
    spec = gateway_objects.kept("pods", body).spec
    assert [volume.name for volume in spec.volumes] == ["data"]
    assert [port.host_port for port in spec.containers[0].ports] == [8080]


def test_disks_and_claims_made_for_the_pod_are_kept_without_what_no_decision_reads() -> None:
    body = gateway_objects.pod()
    body["spec"]["volumes"] = [
        {"name": "disk", "gcePersistentDisk": {"pdName": "x", "fsType": "ext4"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
    ]
    assert msgspec.to_builtins(gateway_objects.kept("pods", body).spec.volumes) == (
        {"name": "disk", "gcePersistentDisk": {"pdName": "x"}},
        {"name": "scratch", "ephemeral": {}},
    )


def test_actual_resources_of_a_container_are_kept_only_while_they_differ_from_its_requests() -> None:
    body = gateway_objects.pod()
    container = body["spec"]["containers"][0]
    requested = container["resources"]["requests"]
    status = {"name": container["name"], "resources": {"requests": requested}, "allocatedResources": requested}
    body["status"]["containerStatuses"] = [status]
    assert gateway_objects.kept("pods", body).status.container_statuses == ()
    status["allocatedResources"] = requested | {"cpu": "9"}
    (kept,) = gateway_objects.kept("pods", body).status.container_statuses
    assert kept.allocated_resources == requested | {"cpu": "9"}


def test_states_and_restarts_of_containers_are_kept_in_a_short_form() -> None:
    body = gateway_objects.pod(
        status={
            "phase": "Failed",
            "reason": "Evicted",
            "containerStatuses": [
                {"name": "runs", "state": {"running": {"startedAt": "2026-05-01T20:00:00Z"}}},
                {"name": "restarted", "restartCount": 3, "state": {"running": {}}},
                {
                    "name": "waits",
                    "restartCount": 7,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}},
                },
            ],
            "initContainerStatuses": [
                {"name": "first", "state": {"terminated": {"reason": "Completed", "exitCode": 0, "containerID": "c"}}}
            ],
            "ephemeralContainerStatuses": [
                {"name": "debug", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
            ],
        }
    )
    status = msgspec.to_builtins(gateway_objects.kept("pods", body).status)
    assert status == {
        "phase": "Failed",
        "reason": "Evicted",
        "qosClass": "Burstable",
        "containerStates": (
            {"name": "restarted", "restartCount": 3},
            {"name": "waits", "restartCount": 7, "waiting": "CrashLoopBackOff"},
            {"name": "first", "kind": "init", "terminated": "Completed", "exitCode": 0},
            {"name": "debug", "kind": "ephemeral", "terminated": "OOMKilled", "exitCode": 137},
        ),
    }


def test_a_container_that_resizes_keeps_its_resources_alone() -> None:
    body = gateway_objects.pod()
    status = {
        "name": "main",
        "restartCount": 1,
        "state": {"waiting": {"reason": "x"}},
        "allocatedResources": {"cpu": "9"},
    }
    body["status"]["containerStatuses"] = [status | {"resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}]
    (kept,) = gateway_objects.kept("pods", body).status.container_statuses
    assert (kept.restart_count, kept.state) == (0, None)


def test_only_selector_replicas_and_owner_of_a_workload_are_kept() -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "w", "controller": True}]
    metadata = {
        "name": "web", "namespace": "d", "uid": "u", "resourceVersion": "3", "labels": {"a": "b"}, "ownerReferences": owners,
    }  # fmt: skip
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {}}
    seen = gateway_objects.seen("replicasets.apps", {"metadata": metadata, "spec": spec, "status": {"replicas": 2}})
    assert (seen.key, seen.version) == ("d/web", "3")
    assert seen.object == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "d", "uid": "u", "ownerReferences": owners},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "replicas": 3},
    }


def test_a_volume_that_exists_on_the_node_alone_is_kept_as_a_mark_of_the_pod() -> None:
    body = gateway_objects.pod()
    assert not gateway_objects.kept("pods", body).spec.local_storage
    body["spec"]["volumes"] = [{"name": "token", "projected": {}}, {"name": "cache", "emptyDir": {}}]
    kept = gateway_objects.kept("pods", body)
    assert (kept.spec.volumes, kept.spec.local_storage) == ((), True)
    body["spec"]["volumes"] = [{"name": "logs", "hostPath": {"path": "/var/log"}}]
    assert gateway_objects.kept("pods", body).spec.local_storage


@pytest.mark.parametrize(
    ("annotation", "kept"),
    [
        ("scheduling.koordinator.sh/gpu-partitions", True),
        ("koordinator.sh/qosClass", True),
        ("quota.scheduling.koordinator.sh/tree-id", True),
        ("gang.scheduling.koordinator.sh/name", True),
        ("pod-group.scheduling.sigs.k8s.io/name", True),
        ("descheduler.alpha.kubernetes.io/evict", True),
        ("controller.kubernetes.io/pod-deletion-cost", True),
        ("kubernetes.io/config.mirror", True),
        ("hami.io/vgpu-node", True),
        ("kubernetes.io/limit-ranger", False),
        ("kubectl.kubernetes.io/last-applied-configuration", False),
        ("notkoordinator.sh/x", False),
        ("plain", False),
    ],
)
def test_which_annotations_are_kept(annotation: str, kept: bool) -> None:
    assert keeps(annotation) is kept


def test_an_untyped_object_is_the_same_from_a_list_and_from_a_watch() -> None:
    """Items of a list lack apiVersion and kind; an old apply leaves an annotation behind."""
    metadata = {
        "name": "slo-controller-config",
        "namespace": "koordinator-system",
        "uid": "u",
        "resourceVersion": "3",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    data = {"colocation-config": '{"enable":true}'}
    listed = gateway_objects.seen("configmaps", {"metadata": metadata, "data": data})
    watched = gateway_objects.seen(
        "configmaps", {"kind": "ConfigMap", "apiVersion": "v1", "data": data, "metadata": metadata}
    )
    assert listed == watched
    assert listed.key == "koordinator-system/slo-controller-config"
    assert listed.object == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system", "uid": "u"},
        "data": data,
    }


def test_an_amount_written_as_a_number_is_the_quantity_it_stands_for() -> None:
    """A custom resource keeps what was written: `cpu: 4` stays a number in the API."""
    usage = {"resources": {"cpu": 4, "memory": "1Gi"}}
    body = {"metadata": {"name": "n1"}, "status": {"nodeMetric": {"nodeUsage": usage}}}
    kept = gateway_objects.kept("nodemetrics.slo.koordinator.sh", body)
    assert kept.status.node_metric.node_usage.resources == {"cpu": "4", "memory": "1Gi"}


def test_an_object_that_cannot_be_read_does_not_hide_the_others() -> None:
    good, bad = gateway_objects.pod("good"), gateway_objects.pod("bad")
    bad["spec"]["containers"] = "none"
    page = Decoder("pods").page(msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": [good, bad]}))
    readable, unreadable = page.items
    assert keep_fields(RESOURCES["pods"], readable).key == "shop/good"  # type: ignore[arg-type]
    assert unreadable.key == "shop/bad"  # type: ignore[union-attr]
    assert "containers" in unreadable.error  # type: ignore[union-attr]
