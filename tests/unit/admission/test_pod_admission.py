"""The other steps of a pod's way in: annotations, devices, trees, and what is refused. Source: spec/api.md 5.2, 5.4."""

import json
from typing import Any

import pytest

from shared.admission.feature_gates import gates_of
from shared.admission.pod.pod_admission import PodWorld, check, mutated
from shared.admission.pod.qos_validation import MultipleRejections, RequiredLabels, required_labels
from shared.admission.rejection import AdmissionRejected
from shared.errors import KoordError
from shared.kube.elastic_quota import DeclaredQuota
from tests.unit.admission.objects import CLASSES, NAMESPACES, container, pod, profile

EXTENDED = "node.koordinator.sh/extended-resource-spec"
GPU = "koordinator.sh/gpu"
QUOTA = "quota.scheduling.koordinator.sh/"


def world(gates: str = "", **parts: Any) -> PodWorld:
    return PodWorld(gates=gates_of(gates), namespaces=NAMESPACES, classes=CLASSES, **parts)


def created(before: dict[str, Any], gates: str = "", **parts: Any) -> dict[str, Any]:
    return mutated(world(gates, **parts), before, before["metadata"]["namespace"], lambda _profile: 0)


def refusal(
    after: dict[str, Any], gates: str = "", old: dict[str, Any] | None = None, **parts: Any
) -> AdmissionRejected | None:
    try:
        check(world(gates, **parts), after, old, after["metadata"]["namespace"])
    except AdmissionRejected as refused:
        return refused
    return None


def test_a_translated_pod_has_its_batch_resources_in_an_annotation() -> None:
    before = pod(container({"cpu": "1", "memory": "1Gi"}), initContainers=[container({"cpu": "3"}, name="init")])
    found = created(before, profiles=[profile("p", qosClass="BE", priorityClassName="koord-batch")])
    assert json.loads(found["metadata"]["annotations"][EXTENDED]) == {
        "containers": {"main": {"requests": {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}}}
    }


def test_an_equal_annotation_stays_and_an_outdated_one_is_emptied() -> None:
    before = pod(container({"kubernetes.io/batch-cpu": "1000"}))
    same = '{"containers": {"main": {"requests": {"kubernetes.io/batch-cpu": "1000"}}}}'
    before["metadata"]["annotations"] = {EXTENDED: same}
    assert created(before)["metadata"]["annotations"] == {EXTENDED: same}
    plain = pod()
    assert "annotations" not in created(plain)["metadata"]
    plain["metadata"]["annotations"] = {EXTENDED: same}
    assert created(plain)["metadata"]["annotations"] == {EXTENDED: "{}"}
    assert created(plain, "DisableExtendedResourceSpec=true")["metadata"]["annotations"] == {EXTENDED: same}
    plain["metadata"]["annotations"] = {EXTENDED: "bad"}
    with pytest.raises(AdmissionRejected, match="cannot be read"):
        created(plain)


@pytest.mark.parametrize(
    ("requests", "found"),
    [
        ({GPU: "200"}, {GPU + "-core": "200", GPU + "-memory-ratio": "200", GPU + ".shared": "2"}),  # spec/api.md 5.2
        ({GPU: "50"}, {GPU + "-core": "50", GPU + "-memory-ratio": "50", GPU + ".shared": "1"}),
        ({GPU + "-memory-ratio": "150"}, {GPU + "-memory-ratio": "150", GPU + ".shared": "1"}),
        ({GPU + "-core": "300"}, {GPU + "-core": "300", GPU + ".shared": "3"}),
        ({GPU + "-core": "300", GPU + "-memory-ratio": "50"}, {GPU + "-core": "300", GPU + "-memory-ratio": "50", GPU + ".shared": "1"}),
        ({GPU + "-core": "300", GPU + ".shared": "1"}, {GPU + "-core": "300", GPU + ".shared": "1"}),
        ({"cpu": "1"}, {"cpu": "1"}),
    ],
)  # fmt: skip
def test_gpu_requests_are_expanded(requests: dict[str, str], found: dict[str, str]) -> None:
    resources = created(pod(container(requests, dict(requests))))["spec"]["containers"][0]["resources"]
    assert resources == {"requests": found, "limits": found}


def test_gpus_in_limits_alone_are_requests_too() -> None:
    resources = created(pod(container(None, {GPU: "100"})))["spec"]["containers"][0]["resources"]
    whole = {GPU + "-core": "100", GPU + "-memory-ratio": "100", GPU + ".shared": "1"}
    assert resources == {"requests": whole, "limits": whole}


def test_a_pod_of_a_tree_must_go_to_the_nodes_of_its_profile() -> None:
    quotas = {"team": DeclaredQuota(name="team", namespace="kube-system", tree="t1", namespaces=("web",))}
    tree = profile(
        "qp", nodeSelector={"matchLabels": {"pool": "a"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}
    )
    tree["metadata"]["labels"] = {QUOTA + "tree-id": "t1"}
    requirements = [{"key": "pool", "operator": "In", "values": ["a"]}, {"key": "x", "operator": "Exists"}]

    def terms(before: dict[str, Any], gates: str = "MultiQuotaTree=true") -> Any:
        affinity = created(before, gates, quotas=quotas, quota_profiles=[tree])["spec"].get("affinity")
        return (
            affinity and affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        )

    assert terms(pod()) == [{"matchExpressions": requirements}]
    assert terms(pod(namespace="bare", labels={QUOTA + "name": "team"})) == [{"matchExpressions": requirements}]
    assert terms(pod(namespace="bare")) is None
    assert terms(pod(), gates="") is None
    own: list[dict[str, Any]] = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]},
        {"matchFields": []},
    ]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}}
    both = terms(pod(affinity=required))
    assert both == [
        {"matchExpressions": [*own[0]["matchExpressions"], *requirements]},
        {"matchFields": [], "matchExpressions": requirements},
    ]


@pytest.mark.parametrize(
    ("qos", "class_", "requests", "codes"),
    [
        ("BE", "koord-batch", {"kubernetes.io/batch-cpu": "1000"}, []),
        ("LS", "koord-batch", {"kubernetes.io/batch-cpu": "1000"}, ["batchNeedsBE"]),
        ("", "koord-free", {"kubernetes.io/batch-memory": "0"}, []),
        ("BE", "koord-prod", {}, ["forbiddenBE"]),
        ("BE", "unheard-of", {}, ["forbiddenBE"]),
        ("LSR", "koord-prod", {"cpu": "2"}, []),
        ("LSR", "koord-prod", {"cpu": "1500m"}, ["cpuInteger"]),
        ("LSR", "koord-mid", {}, ["cpuRequired", "forbiddenLSR"]),
        ("LSE", "koord-mid", {"cpu": "2"}, []),
        ("LSE", "koord-prod", {}, ["cpuRequired"]),
        ("SYSTEM", "koord-prod", {}, []),
    ],
)
def test_classes_and_requests_must_fit_together(
    qos: str, class_: str, requests: dict[str, str], codes: list[str]
) -> None:
    labels = {"koordinator.sh/qosClass": qos, "koordinator.sh/priority-class": class_}
    refused = refusal(pod(container(requests), labels=labels))
    assert (refused.codes if isinstance(refused, MultipleRejections) else []) == codes


def test_whole_cores_are_counted_with_the_overhead() -> None:
    labels = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}
    assert refusal(pod(container({"cpu": "1500m"}), labels=labels, overhead={"cpu": "500m"})) is None


def test_classes_cannot_be_changed() -> None:
    old = pod(labels={"koordinator.sh/qosClass": "LS", "koordinator.sh/priority": "1"}, priority=9000)
    new = pod(labels={"koordinator.sh/qosClass": "SYSTEM", "koordinator.sh/priority": "2"}, priority=7000)
    refused = refusal(new, old=old)
    assert isinstance(refused, MultipleRejections)
    assert refused.codes == ["immutablePriorityClass", "immutableQoS", "immutableSubPriority"]
    for text in (
        "pod web/nginx",
        "labels.koordinator.sh/qosClass is LS",
        "spec.priority",
        "labels.koordinator.sh/priority",
    ):
        assert text in str(refused)
    skipped = refusal(new, "ColocationProfileSkipValidatingPriority=true", old=old)
    assert isinstance(skipped, MultipleRejections)
    assert "immutableSubPriority" not in skipped.codes


def test_users_cannot_create_pods_that_represent_reservations() -> None:
    reserved = pod()
    reserved["metadata"]["annotations"] = {"scheduling.koordinator.sh/reserve-pod": "true"}
    refused = refusal(reserved)
    assert refused is not None
    assert refused.code == "reservation"


def test_a_pod_cannot_use_a_parent_quota_and_its_preemptibility_is_immutable() -> None:
    quotas = {
        "org": DeclaredQuota(name="org", is_parent=True, namespaces=("web",)),
        "koordinator-default-quota": DeclaredQuota(name="koordinator-default-quota", is_parent=True),
    }
    refused = refusal(pod(), quotas=quotas)
    assert refused is not None
    assert "quota org is a parent" in str(refused)
    assert refusal(pod(), "DisableDefaultQuota=true", quotas=quotas) is None
    assert refusal(pod(), "SupportParentQuotaSubmitPod=true", quotas=quotas) is None
    assert refusal(pod(namespace="bare"), quotas=quotas) is None  # the default quota is never tested
    assert refusal(pod(labels={QUOTA + "name": "unknown"}), quotas=quotas) is None
    changed = refusal(pod(labels={QUOTA + "preemptible": "false"}), old=pod())
    assert changed is not None
    assert changed.code == "quotaMeta"


@pytest.mark.parametrize(
    ("requests", "problem"),
    [
        ({GPU: "100", GPU + ".shared": "1"}, "exclude each other"),
        ({GPU: "0"}, "is 0"),
        ({GPU: "150"}, "multiple of 100"),
        ({GPU + ".shared": "0", GPU + "-memory-ratio": "100"}, "is 0"),
        ({GPU + "-core": "100"}, "exactly one of"),
        ({GPU + "-memory": "8Gi", GPU + "-memory-ratio": "100"}, "exactly one of"),
        ({GPU + "-core": "100", GPU + "-memory-ratio": "150", GPU + ".shared": "4"}, "do not divide"),
        ({GPU + "-core": "100", GPU + "-memory": "8Gi", "huawei.com/npu-core": "1"}, None),
        ({GPU + "-core": "200", GPU + "-memory-ratio": "200", GPU + ".shared": "2"}, None),
        ({GPU: "200"}, None),
    ],
)
def test_an_impossible_device_request_is_rejected_under_its_gate(requests: dict[str, str], problem: str | None) -> None:
    refused = refusal(pod(container(requests)), "ValidatePodDeviceResource=true")
    assert (problem in str(refused)) if problem else (refused is None)
    assert refusal(pod(container(requests))) is None


def config(enable: str, rules: str) -> dict[str, Any]:
    return {"data": {"enable": enable, "rules": rules}}


def test_required_labels_are_required_outside_the_whitelist() -> None:
    rules = json.dumps([{"name": "r", "requiredLabels": ["owner"], "namespaceWhitelist": ["bare"]}])
    requests = required_labels(config(" TRUE\n", rules), RequiredLabels())
    gate = "EnablePodEnhancedValidator=true"
    refused = refusal(pod(), gate, required_labels=requests)
    assert refused is not None
    assert str(refused) == "pod web/nginx: rule r requires the labels owner; add them"
    assert refusal(pod(labels={"owner": ""}), gate, required_labels=requests) is None
    assert (
        refusal(pod(labels={"pod.koordinator.sh/skip-enhanced-validation": "true"}), gate, required_labels=requests)
        is None
    )
    assert refusal(pod(namespace="bare"), gate, required_labels=requests) is None
    assert refusal(pod(), required_labels=requests) is None
    assert required_labels(config("true", "bad"), requests) is requests
    assert required_labels(config("no", rules), requests) == required_labels(None, requests) == RequiredLabels()


def test_gates_are_named_as_upstreams() -> None:
    assert "PodMutatingWebhook" in gates_of("")
    assert "PodMutatingWebhook" not in gates_of("PodMutatingWebhook=false, MultiQuotaTree=True")
    with pytest.raises(KoordError, match="there is no gate 'Nope'"):
        gates_of("Nope=true")
    with pytest.raises(KoordError, match="give MultiQuotaTree=true"):
        gates_of("MultiQuotaTree")
