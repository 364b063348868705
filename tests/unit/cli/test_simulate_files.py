"""`koord simulate`: workloads stand for their pods, and no input is lost without a word."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from cli.main import koord

NODES = [
    {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": 3, "memory": "8Gi", "pods": 110}}}
    for name in ("n1", "n2")
]
TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 0.5, "memory": "1Gi"}}}]},
}


def workload(kind: str, **spec: object) -> dict[str, object]:
    return {"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": TEMPLATE, **spec}}


def simulate(folder: Path, pods: Sequence[object], *options: str, nodes: Sequence[object] = NODES) -> Result:
    for name, objects in (("nodes", nodes), ("pods", pods)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(objects))
    files = ("--nodes", str(folder / "nodes.yaml"), "--pods", str(folder / "pods.yaml"))
    return CliRunner().invoke(koord, ["simulate", *files, *options])


@pytest.mark.parametrize(
    ("objects", "placed"),
    [
        (workload("Deployment", replicas=4), ["shop/web-0", "shop/web-1", "shop/web-2", "shop/web-3"]),
        (workload("Deployment"), ["shop/web-0"]),
        (workload("Deployment", replicas=0), []),
        (workload("StatefulSet", replicas=2), ["shop/web-0", "shop/web-1"]),
        (workload("DaemonSet"), ["shop/web-0", "shop/web-1"]),
        (workload("Job", parallelism=3, completions=2), ["shop/web-0", "shop/web-1"]),
        (
            {"kind": "CronJob", "metadata": {"name": "web"}, "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}},
            ["default/web-0"],
        ),
        ({"kind": "List", "items": [workload("ReplicaSet", replicas=1)]}, ["shop/web-0"]),
    ],
)
def test_a_workload_stands_for_its_pods(tmp_path: Path, objects: object, placed: list[str]) -> None:
    printed = simulate(tmp_path, [objects], "--placements", "--json")
    assert printed.exit_code == 0, printed.output
    *outcomes, result = [msgspec.json.decode(line) for line in printed.stdout.splitlines()]
    assert [outcome["pod"] for outcome in outcomes if outcome["node"]] == placed
    assert (result["placed"], result["rejected"]) == (len(placed), 0)


def test_each_pod_of_a_daemon_set_is_for_one_node(tmp_path: Path) -> None:
    printed = simulate(tmp_path, [workload("DaemonSet")], "--placements", "--json")
    outcomes = [msgspec.json.decode(line) for line in printed.stdout.splitlines()[:-1]]
    assert [outcome["node"] for outcome in outcomes] == ["n1", "n2"]


def test_objects_that_are_no_pods_are_named(tmp_path: Path) -> None:
    printed = simulate(tmp_path, [workload("Deployment"), {"kind": "Service", "metadata": {"name": "web"}}])
    assert printed.exit_code == 0
    assert "pods.yaml: passed over: 1 Service" in printed.stderr


@pytest.mark.parametrize(
    ("nodes", "pods", "error"),
    [
        (NODES, NODES, "pods.yaml has no pod, but 2 Node; --pods is the file of Pod, Deployment"),
        ([workload("Deployment")], NODES, "nodes.yaml has no Node, but 1 Deployment; --nodes is the file of the nodes"),
        (NODES, [], "pods.yaml is empty: it has no pod; --pods is the file of"),
        (
            NODES,
            [workload("Deployment", replicas="many")],
            "Deployment web: spec.replicas is 'many'; give a whole number",
        ),
        (NODES, [{"metadata": {"name": "x"}}], "the object x has no kind"),
        (
            NODES,
            [{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": 3}}],
            "Pod p: spec.containers: expected a list, got a whole number",
        ),
    ],
)
def test_a_file_that_cannot_be_meant_is_an_error(
    tmp_path: Path, nodes: Sequence[object], pods: Sequence[object], error: str
) -> None:
    printed = simulate(tmp_path, pods, nodes=nodes)
    assert printed.exit_code == 1
    assert error in printed.stderr


def test_a_policy_is_read_from_the_config_map_that_the_scheduler_takes(tmp_path: Path) -> None:
    pods = [workload("Deployment", replicas=2)]
    printed = simulate(tmp_path, pods, "--policy", "k8s/examples/scheduler-config-loadaware.yaml", "--json")
    assert printed.exit_code == 0, printed.stderr
    assert msgspec.json.decode(printed.stdout)["placed"] == 2
    bad = tmp_path / "policy.yaml"
    bad.write_text("apiVersion: v1\nkind: ConfigMap\ndata: {koord-scheduler-config: 'profile: []'}\n")
    assert f"policy {bad}: unknown field `profile`" in simulate(tmp_path, pods, "--policy", str(bad)).stderr
    bad.write_text("apiVersion: v1\nkind: ConfigMap\ndata: {koord-scheduler-confg: 'profile: []', notes: x}\n")
    refused = simulate(tmp_path, pods, "--policy", str(bad)).stderr
    assert (
        f"policy {bad}: the service reads the key koord-scheduler-config, and there is koord-scheduler-confg" in refused
    )
    absent = simulate(tmp_path, pods, "--policy", "tight").stderr
    assert "there is no policy 'tight' and no such file (No such file or directory); give default" in absent


def test_the_table_has_no_value_of_python(tmp_path: Path) -> None:
    printed = simulate(tmp_path, [workload("Deployment", replicas=99)])
    assert "pods rejected  " in printed.stdout
    assert "%" in printed.stdout
    assert not {"None", "{", "'"} & set(printed.stdout.replace("{", " { ").split())


def test_a_network_topology_without_a_chain_of_layers_is_named(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(
        "kind: ClusterNetworkTopology\nmetadata: {name: default}\nspec: {networkTopologySpec: []}\n---\n"
        "kind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: 1}}\n"
    )
    pods = tmp_path / "pods.yaml"
    pods.write_text("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n")
    result = CliRunner().invoke(koord, ["simulate", "--nodes", str(nodes), "--pods", str(pods)])
    assert result.exit_code
    assert "ClusterNetworkTopology default has no NodeTopologyLayer; add it" in str(result.exception) + result.output


def test_fields_of_pods_that_the_api_does_not_have_are_named_with_the_right_spelling(tmp_path: Path) -> None:
    main = {"name": "main", "resource": {}, "resources": {"request": {"cpu": "1"}}, "env": [{"name": "A"}]}
    spec = {"containers": [main], "nodeSelectors": {"a": "b"}, "serviceAccountName": "x", "dnsPolicy": "Default"}
    template = {"metadata": {"label": {"app": "web"}, "finalizers": []}, "spec": spec}
    printed = simulate(tmp_path, [workload("Deployment", replicas=3, template=template)])
    assert printed.exit_code == 0, printed.output
    file = tmp_path / "pods.yaml"
    suffix = "is no field of the API and is ignored; perhaps"
    assert printed.stderr.splitlines()[:4] == [
        f"{file}: Pod web-0 and 2 more: metadata.label {suffix} 'labels' is meant",
        f"{file}: Pod web-0 and 2 more: spec.containers[0].resource {suffix} 'resources' is meant",
        f"{file}: Pod web-0 and 2 more: spec.containers[0].resources.request {suffix} 'requests' is meant",
        f"{file}: Pod web-0 and 2 more: spec.nodeSelectors {suffix} 'nodeSelector' is meant",
    ]


def test_all_fields_of_the_apis_pods_are_known(tmp_path: Path) -> None:
    """By the client of the API, which is of another release than the API server now and then."""
    from kubernetes_asyncio import client

    from cli.simulate.unknown_fields import UNREAD

    models = {"Metadata": "V1ObjectMeta"}
    for struct, unread in UNREAD.items():
        model = getattr(client, models.get(struct.__name__, f"V1{struct.__name__}"))
        assert set(model.attribute_map.values()) <= {*struct.__struct_encode_fields__, *unread}, struct.__name__


def test_a_misspelt_field_of_a_pod_group_is_named(tmp_path: Path) -> None:
    group = {
        "kind": "PodGroup",
        "metadata": {"name": "train", "annotations": {"gang.scheduling.koordinator.sh/group": "[]"}},
        "spec": {"minMembr": 5},
    }
    printed = simulate(tmp_path, [group, workload("Job", parallelism=1)]).stderr
    where = f"{tmp_path / 'pods.yaml'}: PodGroup train: "
    assert f"{where}spec.minMembr is no field of the API and is ignored; perhaps 'minMember' is meant\n" in printed
    assert f"{where}annotation gang.scheduling.koordinator.sh/group is unknown, and has no effect; perhaps " in printed
    right = {**group, "metadata": {"name": "train"}, "spec": {"minMember": 1}}
    assert "PodGroup" not in simulate(tmp_path, [right, workload("Job", parallelism=1)]).stderr
