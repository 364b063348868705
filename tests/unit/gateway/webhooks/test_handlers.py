"""Handlers of admission requests over the folded State."""

import json
from typing import Any

import pytest

from services.gateway.webhooks.admission_handlers import APPLIED_PROFILES, QuotaPod, percent_draw
from services.gateway.webhooks.admission_state import CONFIG_MAPS, AdmissionState
from services.gateway.webhooks.webhook_definitions import WEBHOOKS, WebhookEndpoint, configuration, enabled_webhooks
from shared.admission.feature_gates import gates_of
from shared.admission.rejection import AdmissionRejected
from tests.support.pods import written_pod
from tests.unit.gateway.webhooks.admission_cluster import (
    QUOTAS,
    SYSTEM,
    admission_request,
    cluster,
    gone,
    handlers_of,
    node,
    observed,
    quota,
)


def pod(app: str = "batch", **labels: str) -> dict[str, Any]:
    one = {"cpu": "1"}
    return written_pod("p", namespace="web", labels={"app": app, **labels}, requests=one, limits=one)


def test_a_new_pod_has_an_annotation_with_the_profiles_that_selected_it() -> None:
    handlers = handlers_of(cluster())
    after = handlers.mutate_pod(admission_request("CREATE", pod()))
    assert after is not None
    assert after["metadata"]["annotations"][APPLIED_PROFILES] == "batch"
    assert after["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "1000"}
    other = handlers.mutate_pod(admission_request("CREATE", pod("web")))
    assert other is not None
    assert "annotations" not in other["metadata"]
    assert handlers.mutate_pod(admission_request("UPDATE", pod(), pod())) is None


def test_a_deleted_profile_selects_nothing() -> None:
    state = cluster()
    state.apply(gone("clustercolocationprofiles.config.koordinator.sh", "batch"))
    assert handlers_of(state).mutate_pod(admission_request("CREATE", pod())) == pod()


def test_only_this_gateway_may_set_a_pods_classes_later_and_once() -> None:
    bare, marked = pod(), pod(**{"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"})
    marked["metadata"]["annotations"] = {APPLIED_PROFILES: "batch"}
    handlers = handlers_of(cluster(), account="us")
    handlers.validate_pod(admission_request("UPDATE", marked, bare, user="us"))
    with pytest.raises(AdmissionRejected, match="cannot be changed"):
        handlers.validate_pod(admission_request("UPDATE", marked, bare, user="somebody"))
    with pytest.raises(AdmissionRejected, match="cannot be changed"):
        handlers.validate_pod(admission_request("UPDATE", bare, marked, user="us"))


def test_quotas_are_validated_against_the_existing_ones() -> None:
    state = cluster()
    state.apply(quota("org", is_parent=True))
    state.apply(quota("team", "org"))
    handlers = handlers_of(state, pods=[QuotaPod("web/p", "team")])
    late = quota("late", "org").object
    with pytest.raises(AdmissionRejected) as refused:
        handlers.validate_quota(admission_request("CREATE", late))
    assert refused.value.code == "minSum"
    with pytest.raises(AdmissionRejected, match="quota org has the children team"):
        handlers.validate_quota(admission_request("DELETE", None, quota("org").object))
    with pytest.raises(AdmissionRejected, match=r"quota team has the pods web/p"):
        handlers.validate_quota(admission_request("DELETE", None, quota("team").object))
    state.apply(gone(QUOTAS, "web/team"))
    handlers.validate_quota(admission_request("CREATE", late))
    made = handlers.mutate_quota(admission_request("CREATE", late))
    assert made is not None
    assert json.loads(made["metadata"]["annotations"]["quota.scheduling.koordinator.sh/shared-weight"]) == {"cpu": "10"}


def test_nodes_and_strategies_are_validated_against_each_other() -> None:
    state = cluster()
    both = {"nodeConfigs": [{"name": name, "nodeSelector": {"matchLabels": {name: "1"}}} for name in ("a", "b")]}
    state.apply(node("n1", a="1"))
    handlers = handlers_of(state)
    data = {"colocation-config": json.dumps(both)}
    config = observed(CONFIG_MAPS, "slo-controller-config", namespace=SYSTEM, data=data)
    handlers.validate_config_map(admission_request("CREATE", config.object, namespace=SYSTEM))
    state.apply(config)
    before, after = ({"metadata": {"name": "n1", "labels": labels}} for labels in ({"a": "1"}, {"a": "1", "b": "1"}))
    with pytest.raises(AdmissionRejected, match=r"would both select node n1.*___\{\"reason\":\"ExistNodeConfict\""):
        handlers.validate_node(admission_request("UPDATE", after, before))
    handlers.validate_node(admission_request("UPDATE", before, before))
    state.apply(node("n1", a="1", b="1"))
    with pytest.raises(AdmissionRejected, match="both select node n1"):
        handlers.validate_config_map(admission_request("UPDATE", config.object, {"metadata": {}}, namespace=SYSTEM))
    handlers.validate_config_map(admission_request("DELETE", None, config.object, namespace=SYSTEM))
    in_other_namespace = config.object | {"metadata": {"name": "slo-controller-config", "namespace": "web"}}
    handlers.validate_config_map(admission_request("CREATE", in_other_namespace))


def test_a_reservation_gets_labels_and_its_template_the_priority() -> None:
    reservation = {"metadata": {"name": "r", "labels": {"app": "batch"}}, "spec": {"template": {"spec": {}}}}
    after = handlers_of(cluster()).mutate_reservation(admission_request("CREATE", reservation))
    assert after is not None
    assert after["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    assert after["spec"]["template"]["spec"] == {"priorityClassName": "koord-batch", "priority": 5000}
    other = {"metadata": {"name": "r"}, "spec": {}}
    assert handlers_of(cluster()).mutate_reservation(admission_request("CREATE", other)) == other


def test_a_percent_draw_is_the_same_for_the_same_request() -> None:
    assert percent_draw("u")("p") == percent_draw("u")("p")
    drawn = [percent_draw(f"u{n}")("p") for n in range(2_000)]
    assert min(drawn) == 0
    assert max(drawn) == 99
    assert 500 < sum(each < 30 for each in drawn) < 700


def test_the_admission_state_survives_a_restart() -> None:
    state = cluster()
    for event in (quota("org", is_parent=True), node("n1", a="1")):
        state.apply(event)
    rules = json.dumps([{"name": "r", "requiredLabels": ["owner"]}])
    for data in ({"enable": "true", "rules": rules}, {"enable": "true", "rules": "bad"}):
        state.apply(observed(CONFIG_MAPS, "pod-enhanced-validator-config", namespace=SYSTEM, data=data))
    again = AdmissionState()
    again.restore(state.stored())
    assert (again.listed, again.nodes, again.stored()) == (True, {"n1": {"a": "1"}}, state.stored())
    assert again.topology.quotas == state.topology.quotas
    with pytest.raises(AdmissionRejected, match="requires the labels owner"):
        handlers_of(again, "EnablePodEnhancedValidator=true").validate_pod(admission_request("CREATE", pod("web")))


def test_webhooks_that_are_off_by_default_are_not_registered() -> None:
    paths = {webhook.path for webhook in enabled_webhooks(gates_of(""))}
    assert "/mutate-pod" in paths
    assert "/validate-configmap" not in paths
    everything = ",".join(f"{webhook.gate}=true" for webhook in WEBHOOKS)
    assert len(list(enabled_webhooks(gates_of(everything)))) == len(WEBHOOKS)


def test_pods_of_the_system_are_exempt_and_the_endpoint_is_a_service_or_a_url() -> None:
    webhook = next(webhook for webhook in enabled_webhooks(gates_of("")) if webhook.path == "/validate-pod")
    entry = configuration(webhook, WebhookEndpoint((SYSTEM, "koordstream-webhook", 443)), "Q0E=", SYSTEM, "Ignore")
    assert entry["clientConfig"] == {
        "service": {"namespace": SYSTEM, "name": "koordstream-webhook", "path": "/validate-pod", "port": 443},
        "caBundle": "Q0E=",
    }
    assert (entry["failurePolicy"], entry["timeoutSeconds"], entry["sideEffects"]) == ("Ignore", 2, "None")
    assert {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [SYSTEM]} in entry[
        "namespaceSelector"
    ]["matchExpressions"]
    measures = next(
        webhook
        for webhook in enabled_webhooks(gates_of("EnableQuotaAdmission=true"))
        if webhook.path == "/validate-pod"
    )
    changes = configuration(measures, WebhookEndpoint(None, "https://h"), "", SYSTEM, "Ignore")
    assert changes["sideEffects"] == "NoneOnDryRun"
    outside = configuration(webhook, WebhookEndpoint(None, "https://h:9876/"), "Q0E=", SYSTEM, "Fail")
    assert outside["clientConfig"]["url"] == "https://h:9876/validate-pod"
