"""What is answered from the followed state."""

import json
from typing import Any

import pytest

from services.gateway.webhooks.admission_state import CONFIG_MAPS, AdmissionView
from services.gateway.webhooks.handlers import MARK, Held, draw_of
from services.gateway.webhooks.webhook_definitions import HOOKS, Place, configuration, served
from shared.admission.feature_gates import gates_of
from shared.admission.rejection import Refused
from tests.support.pods import written_pod
from tests.unit.gateway.webhooks.admission_cluster import (
    QUOTAS,
    SYSTEM,
    asked,
    cluster,
    desk_of,
    gone,
    node,
    observed,
    quota,
)


def pod(app: str = "batch", **labels: str) -> dict[str, Any]:
    one = {"cpu": "1"}
    return written_pod("p", namespace="web", labels={"app": app, **labels}, requests=one, limits=one)


def test_a_new_pod_bears_the_names_of_the_profiles_that_selected_it() -> None:
    desk = desk_of(cluster())
    after = desk.mutate_pod(asked("CREATE", pod()))
    assert after is not None
    assert after["metadata"]["annotations"][MARK] == "batch"
    assert after["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "1000"}
    other = desk.mutate_pod(asked("CREATE", pod("web")))
    assert other is not None
    assert "annotations" not in other["metadata"]
    assert desk.mutate_pod(asked("UPDATE", pod(), pod())) is None


def test_a_profile_that_is_gone_selects_nothing() -> None:
    view = cluster()
    view.apply(gone("clustercolocationprofiles.config.koordinator.sh", "batch"))
    assert desk_of(view).mutate_pod(asked("CREATE", pod())) == pod()


def test_only_this_gateway_gives_a_pod_its_classes_later_and_once() -> None:
    bare, marked = pod(), pod(**{"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"})
    marked["metadata"]["annotations"] = {MARK: "batch"}
    desk = desk_of(cluster(), account="us")
    desk.validate_pod(asked("UPDATE", marked, bare, user="us"))
    with pytest.raises(Refused, match="cannot be changed"):
        desk.validate_pod(asked("UPDATE", marked, bare, user="somebody"))
    with pytest.raises(Refused, match="cannot be changed"):
        desk.validate_pod(asked("UPDATE", bare, marked, user="us"))


def test_quotas_are_judged_among_those_there_are() -> None:
    view = cluster()
    view.apply(quota("org", is_parent=True))
    view.apply(quota("team", "org"))
    desk = desk_of(view, held=[Held("web/p", "team")])
    late = quota("late", "org").object
    with pytest.raises(Refused) as refused:
        desk.validate_quota(asked("CREATE", late))
    assert refused.value.code == "minSum"
    with pytest.raises(Refused, match="quota org has the children team"):
        desk.validate_quota(asked("DELETE", None, quota("org").object))
    with pytest.raises(Refused, match=r"quota team has the pods web/p"):
        desk.validate_quota(asked("DELETE", None, quota("team").object))
    view.apply(gone(QUOTAS, "web/team"))
    desk.validate_quota(asked("CREATE", late))
    made = desk.mutate_quota(asked("CREATE", late))
    assert made is not None
    assert json.loads(made["metadata"]["annotations"]["quota.scheduling.koordinator.sh/shared-weight"]) == {"cpu": "10"}


def test_nodes_and_strategies_are_judged_against_each_other() -> None:
    view = cluster()
    both = {"nodeConfigs": [{"name": name, "nodeSelector": {"matchLabels": {name: "1"}}} for name in ("a", "b")]}
    view.apply(node("n1", a="1"))
    desk = desk_of(view)
    data = {"colocation-config": json.dumps(both)}
    config = observed(CONFIG_MAPS, "slo-controller-config", namespace=SYSTEM, data=data)
    desk.validate_config_map(asked("CREATE", config.object, namespace=SYSTEM))
    view.apply(config)
    before, after = ({"metadata": {"name": "n1", "labels": labels}} for labels in ({"a": "1"}, {"a": "1", "b": "1"}))
    with pytest.raises(Refused, match=r"would both select node n1.*___\{\"reason\":\"ExistNodeConfict\""):
        desk.validate_node(asked("UPDATE", after, before))
    desk.validate_node(asked("UPDATE", before, before))
    view.apply(node("n1", a="1", b="1"))
    with pytest.raises(Refused, match="both select node n1"):
        desk.validate_config_map(asked("UPDATE", config.object, {"metadata": {}}, namespace=SYSTEM))
    desk.validate_config_map(asked("DELETE", None, config.object, namespace=SYSTEM))
    elsewhere = config.object | {"metadata": {"name": "slo-controller-config", "namespace": "web"}}
    desk.validate_config_map(asked("CREATE", elsewhere))


def test_a_reservation_has_its_labels_and_its_template_the_priority() -> None:
    reservation = {"metadata": {"name": "r", "labels": {"app": "batch"}}, "spec": {"template": {"spec": {}}}}
    after = desk_of(cluster()).mutate_reservation(asked("CREATE", reservation))
    assert after is not None
    assert after["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    assert after["spec"]["template"]["spec"] == {"priorityClassName": "koord-batch", "priority": 5000}
    other = {"metadata": {"name": "r"}, "spec": {}}
    assert desk_of(cluster()).mutate_reservation(asked("CREATE", other)) == other


def test_a_draw_is_the_same_for_the_same_admission() -> None:
    assert draw_of("u")("p") == draw_of("u")("p")
    drawn = [draw_of(f"u{n}")("p") for n in range(2_000)]
    assert min(drawn) == 0
    assert max(drawn) == 99
    assert 500 < sum(each < 30 for each in drawn) < 700


def test_a_view_outlasts_a_restart() -> None:
    view = cluster()
    for event in (quota("org", is_parent=True), node("n1", a="1")):
        view.apply(event)
    rules = json.dumps([{"name": "r", "requiredLabels": ["owner"]}])
    for data in ({"enable": "true", "rules": rules}, {"enable": "true", "rules": "bad"}):
        view.apply(observed(CONFIG_MAPS, "pod-enhanced-validator-config", namespace=SYSTEM, data=data))
    again = AdmissionView()
    again.restore(view.stored())
    assert (again.listed, again.nodes, again.stored()) == (True, {"n1": {"a": "1"}}, view.stored())
    assert again.topology.quotas == view.topology.quotas
    with pytest.raises(Refused, match="requires the labels owner"):
        desk_of(again, "EnablePodEnhancedValidator=true").validate_pod(asked("CREATE", pod("web")))


def test_what_is_off_by_default_is_not_registered() -> None:
    paths = {hook.path for hook in served(gates_of(""))}
    assert "/mutate-pod" in paths
    assert "/validate-configmap" not in paths
    everything = ",".join(f"{hook.gate}=true" for hook in HOOKS)
    assert len(list(served(gates_of(everything)))) == len(HOOKS)


def test_pods_of_the_system_pass_unasked_and_a_service_or_an_address_is_called() -> None:
    hook = next(hook for hook in served(gates_of("")) if hook.path == "/validate-pod")
    entry = configuration(hook, Place((SYSTEM, "koordstream-webhook", 443)), "Q0E=", SYSTEM, "Ignore")
    assert entry["clientConfig"] == {
        "service": {"namespace": SYSTEM, "name": "koordstream-webhook", "path": "/validate-pod", "port": 443},
        "caBundle": "Q0E=",
    }
    assert (entry["failurePolicy"], entry["timeoutSeconds"], entry["sideEffects"]) == ("Ignore", 2, "None")
    assert {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [SYSTEM]} in entry[
        "namespaceSelector"
    ]["matchExpressions"]
    measures = next(hook for hook in served(gates_of("EnableQuotaAdmission=true")) if hook.path == "/validate-pod")
    changes = configuration(measures, Place(None, "https://h"), "", SYSTEM, "Ignore")
    assert changes["sideEffects"] == "NoneOnDryRun"
    outside = configuration(hook, Place(None, "https://h:9876/"), "Q0E=", SYSTEM, "Fail")
    assert outside["clientConfig"]["url"] == "https://h:9876/validate-pod"
