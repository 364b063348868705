"""`koord simulate`: lists of nodes and pods in, placements out."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import koord

OPENB = Path(os.environ.get("KOORD_SHARED", Path(__file__).parents[3] / "../shared")) / "data" / "openb"

NODES = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: small}, status: {allocatable: {cpu: "2", memory: 4Gi, pods: "10"}}}
- {apiVersion: v1, kind: Node, metadata: {name: large}, status: {allocatable: {cpu: "8", memory: 16Gi, pods: "10"}}}
"""

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  {on}
  containers: [{{name: c, resources: {{requests: {{cpu: "{cpu}", memory: 1Gi}}}}}}]
---
"""

TRACE_NODES = "sn,cpu_milli,memory_mib,gpu,model\ng0,32000,65536,2,T4\ng1,32000,65536,1,P100\n"
TRACE_PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
share,1000,1024,1,500,P100|V100
whole,1000,1024,1,1000,
two,1000,1024,2,1000,
"""


def simulate(*arguments: str) -> str:
    result = CliRunner().invoke(koord, ["simulate", *arguments])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.stdout


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(koord, ["simulate", *arguments])
    assert result.exit_code != 0
    return str(result.exception) + result.output


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    nodes, pods = tmp_path / "nodes.yaml", tmp_path / "pods.yaml"
    nodes.write_text(NODES)
    running = POD.format(name="running", cpu="6", on="nodeName: large")
    pods.write_text(running + "".join(POD.format(name=f"p{n}", cpu=cpu, on="") for n, cpu in enumerate("2249")))
    return str(nodes), str(pods)


def test_pods_of_a_file_are_placed_beside_those_that_run(files: tuple[str, str]) -> None:
    *lines, last = simulate("--nodes", files[0], "--pods", files[1], "--placements", "--json").splitlines()
    placements = {(line := json.loads(text))["pod"]: line for text in lines}
    assert {placements[f"default/p{n}"]["node"] for n in (0, 1)} == {"small", "large"}
    assert placements["default/p3"]["code"] == "InsufficientResource"
    assert "cpu" in placements["default/p2"]["message"]
    result = json.loads(last)
    assert (result["placed"], result["rejected"], result["gpu_allocated_percent"]) == (2, 2, None)
    assert result["cpu_allocated_percent"] == 100.0
    assert result["reasons"] == {"InsufficientResource": 2}


def test_a_trace_has_gpus_as_a_plain_resource_and_models_as_labels(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(TRACE_NODES)
    pods.write_text(TRACE_PODS)
    *lines, last = simulate("--nodes", str(nodes), "--pods", str(pods), "--placements", "--json").splitlines()
    outcomes = [json.loads(line) for line in lines]
    assert outcomes[0]["node"] == "g1", "the only node with a model that the pod allows"
    assert json.loads(last)["gpu_allocated_percent"] == pytest.approx(100 * sum(
        milli for outcome, milli in zip(outcomes, (500, 1000, 2000), strict=True) if outcome.get("node")
    ) / 3000, abs=0.01)  # fmt: skip


def test_a_draw_follows_from_its_seed(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(TRACE_NODES)
    pods.write_text(TRACE_PODS)
    given = ("--nodes", str(nodes), "--pods", str(pods), "--arrive-percent", "300", "--placements")

    def names(seed: str) -> list[str]:
        lines = simulate(*given, "--seed", seed, "--json").splitlines()[:-1]
        return [json.loads(line)["pod"] for line in lines]

    assert names("1") == names("1")
    assert names("1") != names("2")


@pytest.mark.parametrize(
    ("nodes", "pods", "extra", "message"),
    [
        (TRACE_NODES, "name,cpu_milli\nx,1\n", (), "no column"),
        (TRACE_NODES.replace("32000", "many"), TRACE_PODS, (), "line 2"),
        (TRACE_NODES, TRACE_PODS, ("--policy", "tight"), "there is no policy 'tight'"),
        (TRACE_NODES, "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\nx,1,1,0,0,\n", ("--arrive-percent", "10"), "no pod"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(
    tmp_path: Path, nodes: str, pods: str, extra: tuple[str, ...], message: str
) -> None:
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "pods.csv").write_text(pods)
    assert message in refused("--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv"), *extra)


def test_a_bad_object_is_named(files: tuple[str, str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: Pod\nmetadata: {name: odd}\nspec: {containers: many}\n")
    assert "Pod odd" in refused("--nodes", files[0], "--pods", str(bad))


@pytest.mark.skipif(not OPENB.is_dir(), reason=f"no trace at {OPENB}; set KOORD_SHARED")
def test_the_published_trace_is_placed() -> None:
    given = (
        "--nodes",
        str(OPENB / "openb_node_list_gpu_node.csv"),
        "--pods",
        str(OPENB / "openb_pod_list_default.csv"),
    )
    result = json.loads(simulate(*given, "--policy", "most-allocated", "--arrive-percent", "30", "--json"))
    assert result["rejected"] == 0
    assert 29.9 < result["gpu_allocated_percent"] < 30.2


RESERVED = """\
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: web}
spec:
  ttl: 1h
  owners: [{labelSelector: {matchLabels: {app: web}}}]
  template: {spec: {containers: [{name: c, resources: {requests: {cpu: 6}}}]}}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: vast}
spec:
  ttl: 1h
  owners: [{labelSelector: {matchLabels: {app: web}}}]
  template: {spec: {containers: [{name: c, resources: {requests: {cpu: 60}}}]}}
---
"""


def test_reservations_are_placed_first_used_by_their_owners_and_free_their_rest(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.yaml", tmp_path / "pods.yaml"
    nodes.write_text(NODES)
    owner = POD.format(name="owner", cpu="3", on="").replace("{name: owner}", "{name: owner, labels: {app: web}}")
    first, later = (POD.format(name=name, cpu="5", on="") for name in ("first", "later"))
    pods.write_text(first + owner + later + RESERVED)
    printed = [
        json.loads(line)
        for line in simulate("--nodes", str(nodes), "--pods", str(pods), "--placements", "--json").splitlines()
    ]
    by_name = {line.get("reservation") if "phase" in line else line["pod"]: line for line in printed[:-1]}
    assert by_name["web"]["phase"] == "Succeeded"
    assert (by_name["web"]["node"], by_name["web"]["pods"]) == ("large", ["default/owner"])
    assert by_name["vast"]["phase"] == "Pending"
    assert "Insufficient cpu" in by_name["vast"]["message"]
    assert (by_name["default/owner"]["node"], by_name["default/owner"]["reservation"]) == ("large", "web")
    placed = [name for name in ("default/first", "default/later") if by_name[name]["node"]]
    assert placed == ["default/first"], "what the owner left of the Reservation is free for one of them"
    assert (printed[-1]["reservations_held"], printed[-1]["reservations_waiting"]) == (1, 1)
