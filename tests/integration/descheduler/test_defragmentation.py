"""Defragment as processes: the manifests and the configuration of docs/descheduling.md, until the gang runs."""

import re
from pathlib import Path

import yaml

from cli.embedded import EmbeddedNats
from cli.kinds import evictions
from cli.kinds.listed_eviction import ListedEviction
from cli.scheduling.why_eviction_case import ExplainedCase, explain_case
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


async def explanation(database: str, name: str) -> ExplainedCase:
    opened = Database(database)
    try:
        found = await explain_case(LogReader(opened), name)
    finally:
        await opened.close()
    assert found is not None
    return found


async def test_a_pod_moves_for_a_gang_that_waits_and_the_gang_is_admitted(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    specs = [
        Spec("simulator", "simulator", {"KOORD_SIMULATOR_NODES": "0"}),
        Spec("scheduler", "scheduler", {}),
        Spec("descheduler", "descheduler", {"KOORD_DESCHEDULER_DEBOUNCE_S": "1"}),
    ]
    async with simulated_services(database, nats, tmp_path, specs) as (_, api):
        await apply(api, FILES["cluster.yaml"])
        before = await until(lambda: running(api, "web", 3))
        assert sorted(before.values()) == ["n1", "n2", "n3"]
        await store_config_map(api, "koord-descheduler-config", {"koord-descheduler-config": SOON})
        await apply(api, FILES["train.yaml"])

        async def closed() -> list[ListedEviction]:
            return [each for each in await evictions.read(database) if each.state != "open"]

        (case,) = await until(closed)
        assert (case.plugin, case.state, case.gain) == ("Defragment", "moved", ("default/train: admitted",))
        found = await explanation(database, case.name)
        assert found.unit == "gang default/train: admitted"
        (victim,) = found.victims
        trained, after = await until(lambda: running(api, "train", 2)), await until(lambda: running(api, "web", 3))
        assert trained["train-0"] == victim.node
        assert sorted(after.values()) == sorted([*(n for n in before.values() if n != victim.node), victim.destination])
