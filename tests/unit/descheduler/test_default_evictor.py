"""DefaultEvictor as a filter. Source: spec/descheduler.md 4.3."""

from typing import Any

import pytest

from services.descheduler.configuration.read_configuration import read_configuration
from services.descheduler.plugins.default_evictor import default_evictor_filter, read_args
from services.descheduler.state.measured_nodes import pod_on_node
from shared.domain.component_config import BadConfig
from shared.kube.pod import ClaimSource, Volume
from tests.unit.descheduler.small_cluster import WEB, SmallCluster
from tests.unit.descheduler.test_sigs_plugins import victims

CLAIM = {"volumes": (Volume(name="v", persistent_volume_claim=ClaimSource(claim_name="c")),)}
EVICT, SOFT = "descheduler.alpha.kubernetes.io/evict", "descheduler.alpha.kubernetes.io/prefer-no-eviction"


def reason(args: dict[str, Any], **pod: Any) -> str:
    """Returns why the filter keeps a pod."""
    cluster = SmallCluster()
    cluster.namespace("default", {"team": "a"})
    cluster.budget("web", WEB)
    cluster.node("n")
    cluster.pod("p", "n", **pod)
    found = default_evictor_filter(cluster.state, read_args(args, "args"), cluster.now_ns)
    return found(pod_on_node(cluster.state.cluster.pods.by_uid["p"]))


@pytest.mark.parametrize(
    ("args", "pod", "why"),
    [
        ({}, {}, ""),
        ({}, {"kind": "DaemonSet"}, "DaemonSet"),
        ({"evictDaemonSetPods": True}, {"kind": "DaemonSet"}, ""),
        ({"podProtections": {"defaultDisabled": ["DaemonSetPods"]}}, {"kind": "DaemonSet"}, ""),
        ({}, {"kind": ""}, "no owner"),
        ({"evictFailedBarePods": True}, {"kind": ""}, "no owner"),
        ({"evictFailedBarePods": True}, {"kind": "", "status": {"phase": "Failed"}}, ""),
        ({}, {"priority": 2_000_000_000}, "system-critical"),
        ({"evictSystemCriticalPods": True, "priorityThreshold": {"value": 10}}, {"priority": 2_000_000_000}, ""),
        ({"priorityThreshold": {"value": 100}}, {"priority": 100}, "priorityThreshold 100"),
        ({"priorityThreshold": {"value": 100}}, {"priority": 99}, ""),
        ({}, {"spec": {"local_storage": True}}, "local storage"),
        ({"evictLocalStoragePods": True}, {"spec": {"local_storage": True}}, ""),
        ({}, {"spec": CLAIM}, ""),
        ({"ignorePvcPods": True}, {"spec": CLAIM}, "claim"),
        ({"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, {"spec": CLAIM}, "claim"),
        ({"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, {"kind": "DaemonSet"}, "DaemonSet"),
        ({"podProtections": {"extraEnabled": ["PodsWithoutPDB"]}}, {}, "disruption budget"),
        ({"ignorePodsWithoutPDB": True}, {"labels": WEB}, ""),
        ({}, {"annotations": {"kubernetes.io/config.mirror": "x"}}, "static"),
        ({}, {"annotations": {"kubernetes.io/config.source": "file"}}, "static"),
        ({}, {"deletion_timestamp": "2026-05-28T20:26:40Z"}, "terminating"),
        ({}, {"annotations": {EVICT: "", "kubernetes.io/config.mirror": "x"}}, ""),
        ({}, {"annotations": {SOFT: ""}}, ""),
        ({"noEvictionPolicy": "Mandatory"}, {"annotations": {SOFT: ""}}, "noEvictionPolicy"),
        ({"noEvictionPolicy": "Mandatory"}, {"annotations": {SOFT: "", EVICT: ""}}, ""),
        ({"labelSelector": {"matchLabels": WEB}}, {}, "labelSelector"),
        ({"labelSelector": {"matchLabels": WEB}}, {"labels": WEB}, ""),
        ({"namespaceLabelSelector": {"matchLabels": {"team": "a"}}}, {}, ""),
        ({"namespaceLabelSelector": {"matchLabels": {"team": "b"}}}, {}, "namespace"),
        ({"minReplicas": 2}, {}, "1 pods"),
        ({"minReplicas": 1}, {}, ""),
        ({"minReplicas": 2}, {"kind": ""}, "no owner"),
        ({"minPodAge": "10s"}, {"status": {"start_time": "2026-05-28T20:26:31Z"}}, "minPodAge"),
        ({"minPodAge": "9s"}, {"status": {"start_time": "2026-05-28T20:26:31Z"}}, ""),
        ({"minPodAge": "9s"}, {}, "minPodAge"),
    ],
)  # fmt: skip
def test_which_pods_stay(args: dict[str, Any], pod: dict[str, Any], why: str) -> None:
    found = reason(args, **pod)
    assert why in found if why else not found


def test_it_filters_beside_migration_controller() -> None:
    text = (
        "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\ndeschedulingInterval: 10s\nprofiles: [{plugins: "
        "{deschedule: {enabled: [{name: PodLifeTime}]}, filter: {enabled: [{name: DefaultEvictor}]}}, pluginConfig: ["
        "{name: PodLifeTime, args: {states: [Running]}}, {name: DefaultEvictor, args: {labelSelector: {matchLabels: {app: web}}}}]}]"
    )
    cluster = SmallCluster(text)
    for name in ("a", "b"):
        cluster.node(name)
    cluster.pod("other", "a")
    cluster.pod("web", "a", labels=WEB)
    cluster.pod("storage", "a", labels=WEB, spec={"local_storage": True})
    assert victims(cluster) == ["web"]


def test_in_place_of_migration_controller_it_moves_nothing() -> None:
    text = (
        "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\ndeschedulingInterval: 10s\nprofiles: [{plugins: "
        "{deschedule: {enabled: [{name: PodLifeTime}]}, evict: {disabled: [{name: '*'}], enabled: [{name: DefaultEvictor}]}}, "
        "pluginConfig: [{name: PodLifeTime, args: {states: [Running]}}]}]"
    )
    cluster = SmallCluster(text)
    for name in ("a", "b"):
        cluster.node(name)
    cluster.pod("web", "a")
    case = cluster.cycle()
    assert case is not None
    assert case.dry_run


@pytest.mark.parametrize(
    ("args", "path", "reason"),
    [
        ("{noEvictionPolicy: Maybe}", ".noEvictionPolicy", "Mandatory"),
        ("{podProtections: {extraEnabled: [DaemonSetPods]}}", ".podProtections.extraEnabled[0]", "PodsWithPVC"),
        ("{podProtections: {defaultDisabled: [DaemonSetPod]}}", ".podProtections.defaultDisabled[0]", "DaemonSetPods"),
        ("{podProtections: {extraEnabled: [PodsWithPVC, PodsWithPVC]}}", ".podProtections.extraEnabled[1]", "once"),
        ("{podProtections: {extraEnabled: [PodsWithPVC]}, evictDaemonSetPods: true}", ".podProtections", "one kind"),
        ("{priorityThreshold: {name: high}}", ".priorityThreshold.name", "value"),
        ("{minPodAge: old}", ".minPodAge", "duration"),
        ("{podProtections: {config: {PodsWithPVCs: {}}}}", ".podProtections.config", "PodsWithPVC"),
    ],
)
def test_bad_arguments_are_rejected_with_path_and_reason(args: str, path: str, reason: str) -> None:
    text = (
        "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n"
        f"profiles: [{{pluginConfig: [{{name: DefaultEvictor, args: {args}}}]}}]"
    )
    with pytest.raises(BadConfig) as caught:
        read_configuration(text)
    assert caught.value.path == f"profiles[0].pluginConfig[0].args{path}"
    assert reason in caught.value.reason
