"""`koord dev apply`, `patch` and `delete` against the simulator's core, without a bus and a log."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result
from kubernetes_asyncio import client

from cli.dev import simulated_objects
from cli.dev.misspelt_fields import misspelt_fields
from cli.main import koord
from cli.simulate.unknown_fields import UNREAD
from cli.supervisor.endpoints import Endpoints
from services.simulator.api.request_execution import Request, get, list_
from services.simulator.api.resource_kinds import RESOURCES
from shared.kube.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from tests.unit.simulator.simulated_world import World

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SIGS, OWN = "scheduling.sigs.k8s.io", "koordinator.sh"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": 4}}}
NO_FIELD = "is no field of the API; perhaps"


class _Bus:
    connected = True

    def __init__(self, world: World) -> None:
        self._world = world

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    async def request(self, subject: str, data: bytes, **_: Any) -> bytes:
        verb = subject.rpartition(".")[2]
        if read := {"get": get, "list": list_}.get(verb):
            return read(self._world.state, data)
        return json.dumps(self._world.step(Request(verb, data))[0]).encode()


class Cluster:
    """A simulated cluster, and the terminal of its user."""

    def __init__(self, folder: Path) -> None:
        self.world, self._folder = World(), folder

    def dev(self, *words: str) -> Result:
        return CliRunner().invoke(koord, ["dev", *words])

    def apply(self, *bodies: dict[str, Any]) -> Result:
        file = self._folder / "objects.yaml"
        file.write_text(yaml.safe_dump_all(bodies, sort_keys=False))
        return self.dev("apply", str(file))

    def names(self, resource: str) -> set[str]:
        return set(self.world.state.objects.get(resource, {}))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)
    monkeypatch.setattr(simulated_objects, "bus_of", lambda *_: _Bus(made.world))
    monkeypatch.setattr(simulated_objects, "find_endpoints", lambda _: Endpoints("", ""))
    return made


def quota(group: str, name: str = "web", **spec: Any) -> dict[str, Any]:
    place = {"name": name, "namespace": "default"}
    return {"apiVersion": f"{group}/v1alpha1", "kind": "ElasticQuota", "metadata": place, "spec": spec}


def pod(**changes: Any) -> dict[str, Any]:
    return POD | {"spec": {"containers": [{"name": "c", "image": "i"}]} | changes}


def error_of(result: Result) -> str:
    assert result.exit_code
    return f"{result.exception}{result.output}"


def test_a_bare_kind_means_the_group_that_has_the_object(cluster: Cluster) -> None:
    assert cluster.apply(quota(SIGS), quota(OWN, "other")).exit_code == 0
    assert cluster.dev("patch", "elasticquota", "web", '{"spec": {"min": {"cpu": 1}}}').exit_code == 0
    stored = cluster.world.state.objects[f"elasticquotas.{SIGS}"]["default/web"]
    assert msgspec.to_builtins(stored)["spec"] == {"min": {"cpu": 1}}
    assert cluster.dev("delete", "elasticquotas", "other").exit_code == 0
    assert not cluster.names(f"elasticquotas.{OWN}")
    assert f'elasticquotas.{SIGS} "default/absent" not found' in error_of(cluster.dev("delete", "eq", "absent"))
    assert cluster.dev("delete", "ElasticQuota", "web").exit_code == 0
    assert not cluster.names(f"elasticquotas.{SIGS}")


@pytest.mark.parametrize("kind", ["elasticquotas.{}", "ElasticQuota.{}", "elasticquota.v1alpha1.{}"])
def test_a_kind_with_its_group_is_that_one(cluster: Cluster, kind: str) -> None:
    assert cluster.apply(quota(SIGS), quota(OWN)).exit_code == 0
    assert cluster.dev("delete", kind.format(OWN), "web").exit_code == 0
    assert cluster.names(f"elasticquotas.{SIGS}") == {"default/web"}
    assert not cluster.names(f"elasticquotas.{OWN}")


def test_apply_writes_the_status_too_and_prints_unchanged_where_it_changed_nothing(cluster: Cluster) -> None:
    """A NodeMetric is nothing but its status: it was called changed, and was as before."""
    metric = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "n"}}
    used = {"nodeMetric": {"nodeUsage": {"resources": {"cpu": "9"}}}}
    assert cluster.apply(NODE, metric | {"status": used}).stdout == "node/n created\nnodemetric/n created\n"
    stored = cluster.world.state.objects["nodemetrics.slo.koordinator.sh"]["n"]
    assert msgspec.to_builtins(stored)["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "9"
    assert cluster.apply(NODE, metric | {"status": used}).stdout == "node/n unchanged\nnodemetric/n unchanged\n"
    more = NODE | {"status": {"allocatable": {"cpu": 8}}}
    assert cluster.apply(more).stdout == "node/n changed\n"
    assert cluster.apply(more).stdout == "node/n unchanged\n"


def test_a_file_without_objects_is_refused(cluster: Cluster) -> None:
    assert "objects.yaml has no objects" in error_of(cluster.apply())


def test_an_unknown_kind_is_answered_with_those_that_there_are(cluster: Cluster) -> None:
    error = error_of(cluster.dev("delete", "elasticquotas.scheduling.sigs.k8s", "web"))
    assert f"ElasticQuota.{SIGS}, ElasticQuota.{OWN}" in error
    assert f"perhaps 'elasticquotas.{SIGS}' is meant" in error
    error = error_of(cluster.apply({"apiVersion": "apps/v1", "kind": "Pods", "metadata": {"name": "x"}}))
    assert "pods/x: the simulated cluster has no kind 'Pods'; perhaps 'Pod' is meant; there are Pod, Node," in error
    error = error_of(cluster.apply(quota("scheduling.koordinator.sh")))
    assert f"has no kind ElasticQuota; give {SIGS}/v1alpha1 or {OWN}/v1alpha1" in error
    error = error_of(cluster.apply({"kind": "Node", "metadata": {"name": "n"}}))
    assert "node/n: it has no apiVersion; give v1" in error


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (
            pod(containers=[{"name": "c", "image": "i", "resources": {"request": {"cpu": 1}}}]),
            f"pod/web: spec.containers[0].resources.request {NO_FIELD} 'requests'",
        ),
        (pod(priorityClassNam="koord-prod"), f"pod/web: spec.priorityClassNam {NO_FIELD} 'priorityClassName'"),
        (quota(SIGS, mim={"cpu": 1}), f"elasticquota/web: spec.mim {NO_FIELD} 'min'"),
        (
            {
                "apiVersion": f"{SIGS}/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "g"},
                "spec": {"minMembers": 2},
            },
            f"podgroup/g: spec.minMembers {NO_FIELD} 'minMember'",
        ),
        (
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Reservation",
                "metadata": {"name": "r", "label": {}},
                "spec": {"ttll": "1h", "owners": [{"labelselector": {}}], "template": {"spec": {"nodeNam": "n"}}},
            },
            (
                f"reservation/r: spec.ttll {NO_FIELD} 'ttl' is meant; "
                f"reservation/r: spec.owners[0].labelselector {NO_FIELD} 'labelSelector' is meant; "
                f"reservation/r: metadata.label {NO_FIELD} 'labels' is meant; "
                f"reservation/r: spec.template.spec.nodeNam {NO_FIELD} 'nodeName' is meant"
            ),
        ),
        (NODE | {"spec": {"unschedulabel": True}}, f"node/n: spec.unschedulabel {NO_FIELD} 'unschedulable'"),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "dat": {}},
            f"configmap/c: dat {NO_FIELD} 'data'",
        ),
    ],
)
def test_a_field_that_the_kind_does_not_have_is_refused(cluster: Cluster, body: dict[str, Any], fault: str) -> None:
    before = {name: set(objects) for name, objects in cluster.world.state.objects.items()}
    assert fault in error_of(cluster.apply(NODE | {"metadata": {"name": "first"}}, body))
    assert {name: set(objects) for name, objects in cluster.world.state.objects.items()} == before


def test_an_object_that_does_not_exist_is_an_error_with_the_closest_name(cluster: Cluster) -> None:
    made = cluster.apply(NODE | {"metadata": {"name": "node-0007"}}, pod())
    assert made.exit_code == 0, made.output
    for verb, *patch in (("patch", '{"spec": {}}'), ("delete",)):
        error = error_of(cluster.dev(verb, "node", "node-007", *patch))
        assert error.endswith("; perhaps 'node-0007' is meant\n")
        error = error_of(cluster.dev(verb, "pod", "wep", *patch))
        assert error.endswith("; perhaps 'default/web' is meant\n")
    assert "perhaps" not in error_of(cluster.dev("delete", "node", "quite-another"))


def test_a_patch_with_a_misspelt_field_is_refused(cluster: Cluster) -> None:
    assert cluster.apply(NODE, quota(SIGS)).exit_code == 0
    error = error_of(cluster.dev("patch", "node", "n", '{"spec": {"unschedulabel": true}}'))
    assert f"node/n: spec.unschedulabel {NO_FIELD} 'unschedulable' is meant" in error
    error = error_of(cluster.dev("patch", "eq", "web", '{"spec": {"mim": null}}'))
    assert f"elasticquota/web: spec.mim {NO_FIELD} 'min' is meant" in error
    assert cluster.dev("patch", "node", "n", '{"spec": {"unschedulable": true, "taints": null}}').exit_code == 0


def test_a_patch_changes_the_status_too_and_is_unchanged_the_second_time(cluster: Cluster) -> None:
    assert cluster.apply(NODE).exit_code == 0
    larger = '{"status": {"capacity": {"cpu": "64"}}}'
    assert cluster.dev("patch", "node", "n", larger).output == "node/n changed\n"
    assert cluster.dev("patch", "node", "n", larger).output == "node/n unchanged\n"


def test_a_missing_namespace_is_answered_with_its_remedy(cluster: Cluster) -> None:
    research = quota(SIGS, "research") | {"metadata": {"name": "research", "namespace": "quotas"}}
    remedy = "put a document `{apiVersion: v1, kind: Namespace, metadata: {name: quotas}}` before this one"
    error = error_of(cluster.apply(research))
    assert f'elasticquota/research: namespaces "quotas" not found; create it: {remedy}' in error
    train = pod() | {"metadata": {"name": "train-0", "namespace": "ns"}}
    assert 'pod/train-0: namespaces "ns" not found; create it: put a document' in error_of(cluster.apply(train))
    document = yaml.safe_load(remedy.split("`")[1])
    assert (
        cluster.apply(document, research).output
        == "namespace/quotas created\nelasticquota/research created in namespace quotas\n"
    )


def test_the_manifests_of_documents_are_accepted_as_written(cluster: Cluster) -> None:
    text = (DOCS / "quota.md").read_text() + (DOCS / "cli.md").read_text()
    for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        printed = cluster.apply(*yaml.safe_load_all(block))
        assert printed.exit_code == 0, printed.output
    assert cluster.names(f"elasticquotas.{SIGS}") >= {"quotas/research", "quotas/train", "quotas/batch"}
    assert "ns/train-0" in cluster.names("pods")
    assert sum(key.startswith("default/web-") for key in cluster.names("pods")) == 4
    error = error_of(cluster.dev("patch", "rs", "web", '{"spec": {"template": {"spec": {"priorityClassNam": "x"}}}}'))
    assert f"replicaset/web: spec.template.spec.priorityClassNam {NO_FIELD} 'priorityClassName'" in error


def test_all_fields_of_the_apis_nodes_are_known() -> None:
    for struct in (Node, NodeSpec, NodeStatus, NodeCondition, Taint):
        model = getattr(client, f"V1{struct.__name__}")
        assert set(model.attribute_map.values()) == {*struct.__struct_encode_fields__, *UNREAD[struct]}


def test_values_of_another_type_are_refused_with_the_type() -> None:
    gang = {"spec": {"minMember": "three", "minResources": {"cpu": 3}}, "metadata": {"labels": {"team": True}}}
    assert list(misspelt_fields("podgroups.scheduling.sigs.k8s.io", gang)) == [
        "spec.minMember must be of type integer, and is 'three'",
        "metadata.labels.team must be of type string, and is True",
    ]
    assert list(misspelt_fields("podgroups.scheduling.sigs.k8s.io", {"spec": 3})) == ["spec must have fields, and is 3"]
    removal = {"spec": {"minMember": None}, "metadata": {"labels": {"team": None}}}
    assert not list(misspelt_fields("podgroups.scheduling.sigs.k8s.io", removal))
    assert list(misspelt_fields("pods", {"metadata": {"annotations": {"a": 1}}})) == [
        "metadata.annotations.a must be of type string, and is 1"
    ]


def test_every_example_is_accepted() -> None:
    known = {(each.api_version, each.kind): each for each in RESOURCES}
    checked = 0
    for file in sorted((ROOT / "k8s").rglob("*.yaml")):
        for body in yaml.safe_load_all(file.read_text()):
            resource = known.get((str((body or {}).get("apiVersion")), str((body or {}).get("kind"))))
            if resource is not None:
                checked += 1
                assert not list(misspelt_fields(resource.name, body)), file
    assert checked > 10


def test_another_version_of_a_kind_is_refused_with_the_one_that_there_is(cluster: Cluster) -> None:
    error = error_of(cluster.apply(quota(SIGS) | {"apiVersion": f"{SIGS}/v1alpha2"}))
    assert f"'{SIGS}/v1alpha2' has no kind ElasticQuota; give {SIGS}/v1alpha1" in error
    assert "'v7' has no kind Pod; give v1" in error_of(cluster.apply(pod() | {"apiVersion": "v7"}))
