"""Which pods are never evicted, and by which setting they are: spec/descheduler.md 3.5, 3.8, 4.1."""

from typing import Any

import pytest

from services.descheduler.migration.eviction_checks import protection
from services.descheduler.migration.filter_chain import filter_for_plugins
from shared.kube.meta import OwnerReference
from shared.kube.pod import ClaimSource, Pod, Volume
from tests.support.migration import cluster, job_body, migration_args, moved_pod, owner

WEB = owner("ReplicaSet", "web-rs")
CLAIM = (Volume(name="v", persistent_volume_claim=ClaimSource(claim_name="c")),)

PROTECTED: list[tuple[Pod, dict[str, Any], dict[str, Any]]] = [
    (moved_pod("p"), {}, {"evictAllBarePods": True}),
    (moved_pod("p", phase="Failed"), {}, {"evictFailedBarePods": True}),
    (moved_pod("p", controller=WEB, priority=2_000_000_000), {}, {"evictSystemCriticalPods": True}),
    (
        moved_pod("p", controller=WEB, priority=6000),
        {"priorityThreshold": {"value": 6000}},
        {"skipEvictionGates": ["PriorityThreshold"]},
    ),
    (moved_pod("p", controller=WEB, spec={"local_storage": True}), {}, {"evictLocalStoragePods": True}),
    (moved_pod("p", controller=WEB, spec={"volumes": CLAIM}), {"ignorePvcPods": True}, {"skipEvictionGates": ["PVC"]}),
    (
        moved_pod("p", controller=WEB),
        {"labelSelector": {"matchLabels": {"app": "web"}}},
        {"skipEvictionGates": ["LabelSelector"]},
    ),
    (
        moved_pod("p", controller=WEB),
        {"namespaces": {"exclude": ["default"]}},
        {"skipEvictionGates": ["Namespaces"]},
    ),
    (moved_pod("p", controller=WEB), {"namespaces": {"include": ["other"]}}, {"namespaces": {"include": ["default"]}}),
]


@pytest.mark.parametrize(("pod", "settings", "override"), PROTECTED)
def test_a_protected_pod_is_evicted_by_explicit_setting_only(
    pod: Pod, settings: dict[str, Any], override: dict[str, Any]
) -> None:
    assert protection(pod, migration_args(**settings))
    assert not protection(pod, migration_args(**settings | override))


@pytest.mark.parametrize(
    "pod",
    [
        moved_pod("p", controller=owner("DaemonSet", "agents")),
        moved_pod("p", controller=WEB, annotations={"kubernetes.io/config.mirror": "x"}),
        moved_pod("p", controller=WEB, annotations={"kubernetes.io/config.source": "file"}),
        moved_pod("p", controller=WEB, terminating=True),
        moved_pod("p", controller=WEB, annotations={"scheduling.koordinator.sh/eviction-cost": "2147483647"}),
    ],
)
def test_a_pod_that_no_setting_evicts_yields_to_its_own_annotation_alone(pod: Pod) -> None:
    assert protection(
        pod, migration_args(evictAllBarePods=True, evictSystemCriticalPods=True, evictLocalStoragePods=True)
    )
    forced = moved_pod(
        "p",
        controller=pod.metadata.owner_references[0],
        annotations={**(pod.metadata.annotations or {}), "descheduler.alpha.kubernetes.io/evict": ""},
        terminating=bool(pod.metadata.deletion_timestamp),
    )
    assert not filter_for_plugins(cluster([forced], deployments={"web": 10}), migration_args()).reason(forced)


def test_any_owner_of_kind_daemonset_protects() -> None:
    reference = OwnerReference(kind="DaemonSet", name="d", uid="u")
    assert protection(moved_pod("p", controller=reference), migration_args())


def test_a_job_that_has_not_ended_keeps_plugins_from_its_pod() -> None:
    pod = moved_pod("web-0", controller=WEB)
    for phase, found in (("", True), ("Running", True), ("Succeeded", False), ("Aborted", False)):
        facts = cluster([pod], jobs=[job_body("j", "web-0", phase=phase, uid="")], deployments={"web": 10})
        assert bool(filter_for_plugins(facts, migration_args()).existing_job(pod)) == found


def test_a_pod_of_a_scheduler_without_reservations_is_moved_directly_only() -> None:
    pod = moved_pod("web-0", controller=WEB, spec={})
    facts = cluster([pod], deployments={"web": 10})
    assert "schedulerNames" in filter_for_plugins(facts, migration_args(schedulerNames=["other"])).scheduler(pod)
    assert not filter_for_plugins(
        facts, migration_args(schedulerNames=["other"], defaultJobMode="EvictDirectly")
    ).scheduler(pod)
