"""Defragment as processes: the manifests and the configuration of docs/descheduling.md, until the gang runs."""

import json
import re
from pathlib import Path

import yaml

from cli.embedded import EmbeddedNats
from cli.kinds import evictions
from cli.kinds.listed_eviction import ListedEviction
from cli.scheduling.why_eviction_case import ExplainedCase, ExplainedVictim, explain_case
from cli.simulate.simulator_client import SimulatedApi
from cli.supervisor.supervisor import Spec
from shared.log.database import Database
from shared.log.reader import LogReader
from tests.support.simulated_services import simulated_services, store_config_map
from tests.support.waiting import until

GUIDE = (Path(__file__).parents[3] / "docs" / "descheduling.md").read_text()
FILES = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", GUIDE, re.DOTALL))
[CONFIG] = [text for text in re.findall(r"```yaml\n(apiVersion.*?)```", GUIDE, re.DOTALL) if "Defragment" in text]
SOON = CONFIG.replace("deschedulingInterval: 10s", "deschedulingInterval: 1s").replace("Seconds: 60", "Seconds: 2")
# Without an interval of the arbitrator each step of a migration follows the change that permits it.
SOON += "      - name: MigrationController\n        args: {arbitrationArgs: {interval: 1ms}}\n"

GPU_NODE = """
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}
status:
  capacity: {{cpu: 16, memory: 64Gi, pods: 110, koordinator.sh/gpu-core: "200", koordinator.sh/gpu-memory-ratio: "200",
    koordinator.sh/gpu-memory: 160Gi, koordinator.sh/gpu: "200"}}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {{name: {name}}}
spec:
  devices:
  - {{type: gpu, minor: 0, id: GPU-{name}-0, health: true, resources: {{koordinator.sh/gpu-core: "100",
      koordinator.sh/gpu-memory-ratio: "100", koordinator.sh/gpu-memory: 80Gi}}}}
  - {{type: gpu, minor: 1, id: GPU-{name}-1, health: true, resources: {{koordinator.sh/gpu-core: "100",
      koordinator.sh/gpu-memory-ratio: "100", koordinator.sh/gpu-memory: 80Gi}}}}
"""
GPU_SHARES = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: share, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: share}}
  template:
    metadata: {labels: {app: share}}
    spec:
      schedulerName: koord-scheduler
      containers: [{name: share, image: model, resources: {requests: {cpu: 1, koordinator.sh/gpu: "50"}}}]
"""
WHOLE_CARDS = """
apiVersion: v1
kind: Pod
metadata: {name: whole, namespace: default}
spec:
  schedulerName: koord-scheduler
  containers: [{name: whole, image: trainer, resources: {requests: {cpu: 1, koordinator.sh/gpu: "200"}}}]
"""
SERVICES = [
    Spec("simulator", "simulator", {"KOORD_SIMULATOR_NODES": "0"}),
    Spec("scheduler", "scheduler", {}),
    Spec("descheduler", "descheduler", {"KOORD_DESCHEDULER_DEBOUNCE_S": "1"}),
]


async def apply(api: SimulatedApi, text: str) -> None:
    """Creates the objects of a file."""
    for body in yaml.safe_load_all(text):
        await api.create(body)


async def running(api: SimulatedApi, prefix: str, count: int) -> dict[str, str] | None:
    """Returns pod -> node of the pods that have nodes, once there are so many."""
    listed = await api.list("v1", "Pod", "default")
    found = {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in listed
        if pod["metadata"]["name"].startswith(prefix) and pod["spec"].get("nodeName")
    }
    return found if len(found) == count else None


async def cards(api: SimulatedApi, prefix: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Returns pod -> its node, and the minors of its GPUs there, as its annotation has them."""
    found = {}
    for pod in await api.list("v1", "Pod", "default"):
        name, notes = pod["metadata"]["name"], pod["metadata"].get("annotations") or {}
        if name.startswith(prefix) and pod["spec"].get("nodeName"):
            allocated = json.loads(notes["scheduling.koordinator.sh/device-allocated"])["gpu"]
            found[name] = pod["spec"]["nodeName"], tuple(each["minor"] for each in allocated)
    return found


async def explanation(database: str, name: str) -> ExplainedCase:
    opened = Database(database)
    try:
        found = await explain_case(LogReader(opened), name)
    finally:
        await opened.close()
    assert found is not None
    return found


async def test_pods_move_for_a_gang_and_then_for_a_pod_that_needs_all_gpus_of_a_node(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with simulated_services(database, nats, tmp_path, SERVICES) as (_, api):
        await apply(api, FILES["cluster.yaml"])
        before = await until(lambda: running(api, "web", 3))
        assert sorted(before.values()) == ["n1", "n2", "n3"]
        await store_config_map(api, "koord-descheduler-config", {"koord-descheduler-config": SOON})
        await apply(api, FILES["train.yaml"])
        victim = await admitted(database, 1, "gang", "default/train")
        trained, after = await until(lambda: running(api, "train", 2)), await until(lambda: running(api, "web", 3))
        assert trained["train-0"] == victim.node
        assert sorted(after.values()) == sorted([*(n for n in before.values() if n != victim.node), victim.destination])
        await a_share_of_a_gpu_moves(database, api)


async def a_share_of_a_gpu_moves(database: str, api: SimulatedApi) -> None:
    """On each of two further nodes with two GPUs a pod has half of one, and a pod needs both GPUs of a node."""
    for name in ("g1", "g2"):
        await apply(api, GPU_NODE.format(name=name))
    await apply(api, GPU_SHARES)
    before = await until(lambda: running(api, "share", 2))
    assert sorted(before.values()) == ["g1", "g2"]
    await apply(api, WHOLE_CARDS)
    victim = await admitted(database, 2, "pod", "default/whole")
    assert await until(lambda: running(api, "whole", 1)) == {"whole": victim.node}
    after = await until(lambda: running(api, "share", 2))
    assert set(after.values()) == {victim.destination}
    assert await cards(api, "whole") == {"whole": (victim.node, (0, 1))}
    assert all(len(minors) == 1 for _, minors in (await cards(api, "share")).values())


async def admitted(database: str, count: int, kind: str, unit: str) -> ExplainedVictim:
    """Returns the only victim of the newest of so many cases, once its unit is admitted."""

    async def closed() -> list[ListedEviction] | None:
        found = [each for each in await evictions.read(database) if each.state != "open"]
        return found if len(found) == count else None

    (case,) = [each for each in await until(closed) if unit in each.gain[0]]
    assert (case.plugin, case.state, case.gain) == ("Defragment", "moved", (f"{unit}: admitted",))
    found = await explanation(database, case.name)
    assert found.unit == f"{kind} {unit}: admitted"
    (victim,) = found.victims
    return victim
