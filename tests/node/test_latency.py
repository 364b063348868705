"""A service that answers requests does not notice batch pods beside it, as long as best effort is held to what is left."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from cli.dev.node.node import RealNode
from cli.ports import free_port
from tests.node.pods import ask, pod
from tests.node.system import Site, site, until

EXAMPLES = Path(__file__).parents[2] / "k8s" / "examples"
SPACE = "beside"
COLOCATED = {"koordinator.sh/enable-colocation": "true"}
WEIGHT = 8 * 1024
"""Shares of the node's cgroup against 1024 of each process beside it."""
HELD = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


class Pace(NamedTuple):
    """How requests come.

    Attributes:
        length_s: of one measurement.
        every_ms: between two requests.
        rounds: work of each, in blocks that are hashed.
    """

    length_s: int
    every_ms: int = 10
    rounds: int = 40


class Service(NamedTuple):
    """A pod that answers requests, with batch pods beside it."""

    there: Site
    port: int

    async def latency(self, pace: Pace) -> dict[str, int]:
        """What it reports of its own answers."""
        path = f"/latency?for={pace.length_s}s&every={pace.every_ms}ms&rounds={pace.rounds}"
        found: dict[str, int] = await asyncio.to_thread(ask, self.port, path, timeout_s=pace.length_s + 60)
        assert found["failed"] == 0, found
        return found

    def quota_us(self) -> int:
        """What all of best effort may use of each 100 ms; -1: everything."""
        return int((self.there.node.tree.folder("cpu", "kubepods/besteffort") / "cpu.cfs_quota_us").read_text())

    async def hold(self, *, on: bool) -> None:
        """Switch suppression, and wait until it acts."""
        await self.there.configure(resource_threshold_config={"clusterStrategy": {**HELD, "enable": on}})

        async def acts() -> bool:
            return (self.quota_us() != -1) == on

        await until(acts, f"quota {'of' if on else 'taken from'} best effort")

    async def burn(self, cores: int) -> None:
        """Let batch pods burn so many cores; 0 takes them away."""
        for number in range(2):
            path = f"/api/v1/namespaces/{SPACE}/pods/burner-{number}"
            if cores == 0:
                await self.there.call("DELETE", path)
                await until(lambda path=path: _gone(self.there, path), "end of a burner")  # type: ignore[misc]
            else:
                asked = {"requests": {"cpu": "500m", "memory": "64Mi"}, "labels": COLOCATED}
                await self.there.created(SPACE, pod(f"burner-{number}", f"-burn={cores}", **asked))
        for number in range(2 if cores else 0):
            await self.there.running(SPACE, f"burner-{number}")


async def _gone(there: Site, path: str) -> bool:
    return await there.get(path) is None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(real_node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    cluster = real_node.cluster
    cluster.create_namespace(SPACE, COLOCATED)
    cluster.apply(EXAMPLES / "colocation-profile.yaml")
    async with site(real_node, tmp_path_factory.mktemp("site")) as there:
        port = free_port()
        asked: dict[str, Any] = {"requests": {"cpu": "1", "memory": "128Mi"}, "limits": {"cpu": "2", "memory": "256Mi"}}
        body = pod(
            "web",
            f"-listen=127.0.0.1:{port}",
            labels={"koordinator.sh/qosClass": "LS"},
            schedulerName="koord-scheduler",
            **asked,
        )
        await there.created(SPACE, body)
        await there.running(SPACE, "web", port)
        yield Service(there, port)


async def _measured(service: Service, pace: Pace) -> dict[str, dict[str, int]]:
    """Latency alone, with batch pods that are held, and with the same ones that are not."""
    await service.hold(on=True)
    found = {"quiet": await service.latency(pace)}
    await service.burn(2)
    await asyncio.sleep(5)
    found["held"] = await service.latency(pace)
    await service.hold(on=False)
    await asyncio.sleep(2)
    found["free"] = await service.latency(pace)
    await service.burn(0)
    print({name: (each["p50_us"], each["p99_us"], each["max_us"]) for name, each in found.items()}, os.getloadavg())
    return found


async def test_best_effort_is_held_while_a_service_answers_and_let_go_again(service: Service) -> None:
    """The short form: what acts. How much it helps is measured by the long form, on a machine that does nothing else."""
    found = await _measured(service, Pace(2))
    assert all(each["count"] == 200 for each in found.values())


@pytest.mark.soak
async def test_a_service_next_to_batch_pods_that_are_held_answers_as_if_it_were_alone(service: Service) -> None:
    """Three runs; what else this machine does counts little, so that what is measured is what pods do to each other."""
    (service.there.node.tree.folder("cpu") / "cpu.shares").write_text(str(WEIGHT))
    runs = [await _measured(service, Pace(20)) for _ in range(3)]
    for found in runs:
        quiet, held, free = (found[name]["p99_us"] for name in ("quiet", "held", "free"))
        assert held <= 1.2 * quiet, runs
        assert free >= 1.5 * quiet, runs
