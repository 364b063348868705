"""Objects that k8s/base installs on a real API server, and the published examples on top of it."""

import pytest
import yaml

from cli.dev.local_control_plane import Cluster, KubectlFailed
from tests.integration.k8s.crd_inventory import INVENTORY, K8S, Definition, Store, read


def test_the_base_can_be_applied_again_and_then_changes_nothing(installed: Cluster) -> None:
    assert {line.rsplit(" ", 1)[1] for line in installed.apply(K8S / "base").splitlines()} == {"unchanged"}


@pytest.mark.parametrize("row", INVENTORY, ids=lambda row: row.name)
def test_a_definition_is_established_under_the_names_of_the_inventory(installed: Cluster, row: Definition) -> None:
    found = installed.api.call("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{row.name}")
    conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    spec, version = found["spec"], found["spec"]["versions"][0]
    columns = version.get("additionalPrinterColumns", [])
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert "NonStructuralSchema" not in conditions
    assert (spec["names"]["kind"], spec["scope"] == "Namespaced") == (row.kind, row.namespaced)
    assert tuple(spec["names"].get("shortNames", ())) == row.short
    assert ("status" in version.get("subresources", {})) == row.status
    assert tuple(f"{column['name']} <- {column['jsonPath']}" for column in columns) == row.columns


def test_there_are_no_definitions_outside_the_inventory(installed: Cluster) -> None:
    found = installed.api.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    ours = {item["metadata"]["name"] for item in found if item["spec"]["group"] in {row.group for row in INVENTORY}}
    assert ours == {row.name for row in INVENTORY}


def test_the_four_priority_classes_have_the_lowest_value_of_their_band(installed: Cluster) -> None:
    found = installed.api.call("GET", "/apis/scheduling.k8s.io/v1/priorityclasses")["items"]
    ours = {item["metadata"]["name"]: item for item in found if item["metadata"]["name"].startswith("koord-")}
    values = {name: item["value"] for name, item in ours.items()}
    assert values == {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
    assert {item["preemptionPolicy"] for item in ours.values()} == {"PreemptLowerPriority"}
    assert not any(item.get("globalDefault") for item in ours.values())


def test_the_published_batch_pod_is_admitted_with_its_band_and_its_own_priority(
    installed: Cluster, namespace: str
) -> None:
    installed.kubectl("apply", "-n", namespace, "-f", K8S / "examples" / "nginx-batch.yaml")
    pod = installed.api.call("GET", f"/api/v1/namespaces/{namespace}/pods/nginx")
    assert pod["metadata"]["labels"]["koordinator.sh/priority"] == "5300"
    assert (pod["spec"]["priority"], pod["spec"]["schedulerName"]) == (5000, "koord-scheduler")
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}
    assert pod["status"]["qosClass"] == "BestEffort"


def test_the_published_load_thresholds_reach_the_cluster(installed: Cluster) -> None:
    example = K8S / "examples" / "scheduler-config-loadaware.yaml"
    installed.apply(example)
    path = "/api/v1/namespaces/koordinator-system/configmaps/koord-scheduler-config"
    stored = installed.api.call("GET", path)
    installed.api.call("DELETE", path)
    (profile,) = yaml.safe_load(stored["data"]["koord-scheduler-config"])["profiles"]
    assert profile["schedulerName"] == "koord-scheduler"
    (args,) = (each["args"] for each in profile["pluginConfig"] if each["name"] == "LoadAwareScheduling")
    assert args["usageThresholds"] == {"cpu": 75, "memory": 85}
    assert args["aggregated"]["usageAggregationType"] == "p99"


def test_an_elastic_quota_is_found_by_kubectl_under_either_group(installed: Cluster, store: Store) -> None:
    quota, alias = store.create(read("elasticquota")), store.create(read("elasticquota-alias"))
    for group, stored in (("scheduling.sigs.k8s.io", quota), ("koordinator.sh", alias)):
        name = stored["metadata"]["name"]
        command = ("get", f"elasticquotas.{group}", "-n", store.namespace, "-o", "name")
        assert installed.kubectl(*command).split() == [f"elasticquota.{group}/{name}"]


def test_a_short_name_that_the_inventory_does_not_have_is_not_there(installed: Cluster) -> None:
    with pytest.raises(KubectlFailed, match="the server doesn't have a resource type"):
        installed.kubectl("get", "eq")
