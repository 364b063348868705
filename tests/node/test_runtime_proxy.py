"""A real kubelet that reaches containerd through the runtime proxy, with the agent as its hook server."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from cli.dev.local_control_plane import Cluster
from cli.dev.node.kubelet_node import RealNode
from tests.cluster.fixtures import require_programs
from tests.node.first_values import body
from tests.node.hooked_containers import kill_agent
from tests.node.koordstream_on_node import Site, site
from tests.node.latency_experiment import COLOCATED
from tests.node.real_node import K8S, NODE, require_node
from tests.support.kube_system import beside, koord
from tests.support.prepared_folders import copy_cluster
from tests.support.waiting import until

SPACE = "batch"
AMOUNTS = {"cpu": "40m", "memory": "24Mi"}
RIGHT = {"cpu.shares": "40", "cpu.cfs_quota_us": "4000", "memory.limit_in_bytes": str(24 << 20)}
KILL_INTERVAL_S = 5.0
TURNS = 20

pytestmark = [
    pytest.mark.soak,
    pytest.mark.kube,
    pytest.mark.node,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    require_programs(pytestconfig)
    require_node(pytestconfig)
    make = tmp_path_factory.mktemp
    with Cluster(copy_cluster(make("cluster"))) as cluster:
        cluster.apply(K8S / "webhooks")
        cluster.create_namespace(SPACE, COLOCATED)
        cluster.apply(K8S / "examples" / "webhooks" / "colocation-profile.yaml")
        with RealNode(cluster, NODE, make("node"), runtime_proxy=True) as node:
            agent = {
                "HOOK_SERVER": "true",
                "HOOK_SERVER_SOCKET": str(node.folder / "agent.sock"),
                "HOOK_REGISTRATIONS": str(node.registrations),
                "HOOK_FAILURE_POLICY": "Fail",
            }
            async with site(node, make("site"), agent) as running:
                yield running


def registered(there: Site) -> Path | None:
    return next(there.node.registrations.glob("*.json"), None)


async def kill_agent_and_proxy(there: Site) -> None:
    """Kills both in turn, until cancelled; a supervisor starts the agent again, and this function the proxy."""
    proxy = there.node.proxy
    assert proxy is not None
    while True:
        await asyncio.sleep(KILL_INTERVAL_S)
        await kill_agent(there)
        await asyncio.sleep(KILL_INTERVAL_S)
        proxy.kill()
        await asyncio.to_thread(proxy.start)


async def printed_values(there: Site, name: str) -> list[dict[str, str]]:
    """Waits until each container of a pod has printed its values; returns those of all its starts.

    A start that was cut off by a kill has no output: the kubelet starts the container again.
    """
    path = f"/api/v1/namespaces/{SPACE}/pods/{name}"
    made = await there.call("GET", path)
    folder = there.node.folder / "pods" / f"{SPACE}_{name}_{made['metadata']['uid']}"

    async def lines(container: str) -> list[str]:
        return [line for file in (folder / container).glob("*.log") for line in file.read_text().splitlines()]

    found = []
    for container in made["spec"]["containers"]:
        what = f"values of {container['name']} of {name}"
        printed = await until(partial(lines, container["name"]), what, within_s=120)
        found += [json.loads(line.split(" ", 3)[3]) for line in printed]
    await there.call("DELETE", path)
    return found


async def test_200_containers_start_right_while_agent_and_proxy_are_killed_each_five_seconds(there: Site) -> None:
    """The policy is `Fail`: a container waits for the agent, and none starts without its values."""
    await until(lambda: asyncio.sleep(0, registered(there)), "registration")
    starts = 0
    async with beside(kill_agent_and_proxy(there)):
        for turn in range(TURNS):
            bodies = [body(f"turn-{turn}-{number}", 5, AMOUNTS, labels=COLOCATED) for number in range(2)]
            for each in bodies:
                each["spec"]["restartPolicy"] = "OnFailure"
                await there.created(SPACE, each)
            for each in bodies:
                for values in await printed_values(there, each["metadata"]["name"]):
                    assert {name: values[name] for name in RIGHT} == RIGHT, values
                    starts += 1
    assert starts >= 10 * TURNS
    text = await koord(there.system, "node", "hooks", there.node.name, "--limit=100000", "-o", "json")
    records = [each for each in json.loads(text)["containers"] if each["pod"].startswith(f"{SPACE}/")]
    routes = Counter((each["state"], each.get("route", "")) for each in records)
    print(f"{starts} starts; records: {dict(routes)}")
    assert routes.keys() <= {("applied", "proxy"), ("applied", "")}, "each had its values"
    # An agent that is away when a container has started leaves it without a route, or without a record once it has ended.
    assert routes["applied", "proxy"] > 0.8 * starts
