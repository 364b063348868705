"""Nodes and pods of a trace in the columns of openb (cluster-trace-gpu-v2023), as the cluster would have shown them.

Nodes: `sn, cpu_milli, memory_mib, gpu, model`. Pods: `name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec ...`;
    `gpu_milli`
is the share of one GPU and counts only when `num_gpu` is 1; `gpu_spec` lists allowed models by `|`, empty for any.
Other columns are not read. GPUs are one plain resource of a node: which of its GPUs a share lies on is not modelled.
"""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec

from cli.simulate.policies import GPU_MILLI
from shared.domain.pod_requests import pod_requests, whole
from shared.errors import KoordError
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Affinity, Container, NodeAffinity, Pod, PodSpec, PodStatus, RequiredNodeTerms
from shared.kube.pod import ResourceRequirements as Resources
from shared.kube.selectors import NodeSelectorTerm, Requirement

MODEL_LABEL = "alibabacloud.com/gpu-card-model"
WHOLE = 1000
_PERCENT = "koordinator.sh/gpu"
_CARD = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory-ratio": "100",
    "koordinator.sh/gpu-memory": "16Gi",
}
_PODS_OF_A_NODE = "1024"

T = TypeVar("T")


class BadTrace(KoordError):
    """A file that is no trace: names the file, the line and the column."""


def read_nodes(path: Path) -> list[Node]:
    """The nodes of a trace.

    Raises:
        BadTrace: a column is missing or no number.
    """
    return _read(path, _node)


def read_pods(path: Path, scheduler: str) -> list[Pod]:
    """The pods of a trace, waiting for `scheduler`.

    Raises:
        BadTrace: a column is missing or no number.
    """
    return _read(path, lambda row: _pod(row, scheduler))


def with_devices(nodes: Sequence[Node], pods: Sequence[Pod]) -> tuple[list[Node], list[Pod], list[dict[str, Any]]]:
    """Returns nodes and pods whose GPUs are devices: a share lies on one of them; and the nodes' Devices."""
    listed = []
    for node in nodes:
        gpus = int((node.status.allocatable or {}).get(GPU_MILLI, "0")) // WHOLE
        cards = [
            {"type": "gpu", "minor": minor, "id": f"{node.metadata.name}-{minor}", "health": True, "resources": _CARD}
            for minor in range(gpus)
        ]
        listed.append({"metadata": {"name": node.metadata.name}, "spec": {"devices": cards}})
    return [_gpu_node(node) for node in nodes], [_gpu_pod(pod) for pod in pods], listed


def workload_of(pods: Sequence[Pod]) -> list[dict[str, object]]:
    """Returns the mix of pods, for the plugins that pack GPUs."""
    counted = Counter(type_of_pod(pod) for pod in pods)
    return [
        {"cpuMilli": cpu, "memory": memory, "gpus": gpus, "share": share, "models": list(models), "pods": number}
        for (cpu, memory, gpus, share, models), number in counted.items()
    ]


def type_of_pod(pod: Pod) -> tuple[int, int, int, int, tuple[str, ...]]:
    """Returns the cpu in thousandths, memory in bytes, GPUs, percent of each, and models that a pod requests."""
    requests = whole(pod_requests(pod))
    percent = requests.get(GPU_MILLI, 0) * 100 // WHOLE
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
    models = tuple(sorted(value for term in terms for each in term.match_expressions for value in each.values))
    gpus, share = (percent // 100, 100) if percent >= 100 else (int(percent > 0), percent or 100)
    return requests.get("cpu", 0), requests.get("memory", 0), gpus, share, models


def _gpu_node(node: Node) -> Node:
    allocatable = dict(node.status.allocatable or {})
    percent = int(allocatable.get(GPU_MILLI, "0")) * 100 // WHOLE
    allocatable[_PERCENT] = str(percent)
    return msgspec.structs.replace(node, status=NodeStatus(allocatable=allocatable, capacity=allocatable))


def _gpu_pod(pod: Pod) -> Pod:
    percent = gpu_milli_of(pod) * 100 // WHOLE
    if not percent:
        return pod
    (container,) = pod.spec.containers
    requests = {**((container.resources and container.resources.requests) or {}), _PERCENT: str(percent)}
    container = msgspec.structs.replace(container, resources=Resources(requests=requests))
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=(container,)))


def arriving(pods: Sequence[Pod], upto_milli: int, seed: int) -> Iterator[Pod]:
    """Pods drawn in a shuffled order, list after list, until their GPU requests reach `upto_milli`; each with a uid of
    its own.

    Raises:
        BadTrace: no pod requests a GPU, so that no number of them would be enough.
    """
    if not any(gpu_milli_of(pod) for pod in pods):
        raise BadTrace("no pod of the trace requests a GPU; leave --arrive-percent out")
    random = Random(seed)  # noqa: S311  a trace, not a secret
    arrived, drawn = 0, 0
    while True:
        for pod in random.sample(pods, len(pods)):
            if arrived >= upto_milli:
                return
            drawn += 1
            arrived += gpu_milli_of(pod)
            name = f"{pod.metadata.name}-{drawn:06}"
            yield Pod(metadata=Metadata(name=name, namespace="trace", uid=name), spec=pod.spec, status=pod.status)


def gpu_milli_of(pod: Pod) -> int:
    """Returns the GPU request of a pod of a trace, in thousandths."""
    resources = pod.spec.containers[0].resources if pod.spec.containers else None
    return int(((resources and resources.requests) or {}).get(GPU_MILLI, "0"))


def _node(row: dict[str, str]) -> Node:
    name = row["sn"]
    allocatable = {
        "cpu": f"{int(row['cpu_milli'])}m",
        "memory": f"{int(row['memory_mib'])}Mi",
        GPU_MILLI: str(int(row["gpu"]) * WHOLE),
        "pods": _PODS_OF_A_NODE,
    }
    labels = {"kubernetes.io/hostname": name} | ({MODEL_LABEL: row["model"]} if row["model"] else {})
    status = NodeStatus(allocatable=allocatable, capacity=allocatable)
    return Node(metadata=Metadata(name=name, uid=name, labels=labels), status=status)


def _pod(row: dict[str, str], scheduler: str) -> Pod:
    count = int(row["num_gpu"])
    milli = int(row["gpu_milli"]) if count == 1 else count * WHOLE
    requests = {"cpu": f"{int(row['cpu_milli'])}m", "memory": f"{int(row['memory_mib'])}Mi"}
    if milli:
        requests[GPU_MILLI] = str(milli)
    models = tuple(filter(None, (row.get("gpu_spec") or "").split("|")))
    affinity = None
    if models:
        term = NodeSelectorTerm(match_expressions=(Requirement(key=MODEL_LABEL, operator="In", values=models),))
        affinity = Affinity(node_affinity=NodeAffinity(required=RequiredNodeTerms(node_selector_terms=(term,))))
    return Pod(
        metadata=Metadata(name=row["name"], namespace="trace", uid=row["name"]),
        spec=PodSpec(
            scheduler_name=scheduler,
            affinity=affinity,
            containers=(Container(name="main", resources=Resources(requests=requests)),),
        ),
        status=PodStatus(phase="Pending"),
    )


def _read(path: Path, make: Callable[[dict[str, str]], T]) -> list[T]:
    made = []
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                made.append(make(row))
            except KeyError as error:
                raise BadTrace(
                    f"{path}: there is no column {error.args[0]}; a trace has the columns of openb"
                ) from error
            except (TypeError, ValueError) as error:
                raise BadTrace(f"{path}, line {number}: {error}") from error
    return made
