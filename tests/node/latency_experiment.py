"""Experiment: response time of a service alone, beside suppressed batch pods, and beside the same pods unsuppressed."""

import asyncio
import os
from functools import partial
from typing import Any, NamedTuple

from cli.processes.free_ports import free_port
from tests.node.koordstream_on_node import Site
from tests.node.pod_bodies import get_json, pod
from tests.support.waiting import until

COLOCATED = {"koordinator.sh/enable-colocation": "true"}
THRESHOLD = 30
HELD = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": THRESHOLD}
"""The NodeSLO's threshold while best effort is suppressed. The service and other processes use more of the two cores,
so best effort gets the minimum, 2 ms of each 100."""


class Pace(NamedTuple):
    """The rate of requests.

    Attributes:
        length_s: of one measurement.
        every_ms: between two requests.
        rounds: work of each, in blocks that are hashed.
        settles_s: pause after a change before anything is measured.
    """

    length_s: int
    every_ms: int = 200
    rounds: int = 3000
    settles_s: float = 5


class Service(NamedTuple):
    """A pod that answers requests, with batch pods beside it."""

    there: Site
    namespace: str
    port: int

    async def latency(self, pace: Pace) -> dict[str, int]:
        """Returns the latencies that it reports."""
        path = f"/latency?for={pace.length_s}s&every={pace.every_ms}ms&rounds={pace.rounds}"
        found: dict[str, int] = await asyncio.to_thread(get_json, self.port, path, timeout_s=pace.length_s + 60)
        assert found["failed"] == 0, found
        return found

    def quota_us(self) -> int:
        """Returns the cpu that best effort may use of each 100 ms; -1: everything."""
        return int((self.there.node.tree.folder("cpu", "kubepods/besteffort") / "cpu.cfs_quota_us").read_text())

    async def hold(self, *, on: bool) -> None:
        """Switches suppression, and waits until it takes effect."""
        await self.there.configure(resource_threshold_config={"clusterStrategy": {**HELD, "enable": on}})

        async def acts() -> bool:
            return (self.quota_us() != -1) == on

        await until(acts, f"quota {'of' if on else 'removed from'} best effort")

    async def burn(self, cores: int) -> None:
        """Makes batch pods burn so many cores; 0 removes them."""
        for number in range(2):
            path = f"/api/v1/namespaces/{self.namespace}/pods/burner-{number}"
            if cores == 0:
                await self.there.call("DELETE", path)
                await until(partial(_gone, self.there, path), "end of a burner")
            else:
                resources = {"requests": {"cpu": "500m", "memory": "64Mi"}, "labels": COLOCATED}
                await self.there.created(self.namespace, pod(f"burner-{number}", f"-burn={cores}", **resources))
        for number in range(2 if cores else 0):
            await self.there.running(self.namespace, f"burner-{number}")


async def _gone(there: Site, path: str) -> bool:
    return await there.get(path) is None


async def service_in(there: Site, namespace: str) -> Service:
    """Creates a service.

    It requests no cpu, as many do: only suppression protects it from best effort, not its weight.
    """
    port = free_port()
    resources: dict[str, Any] = {"requests": {"memory": "128Mi"}, "limits": {"memory": "256Mi"}}
    labels = {"koordinator.sh/qosClass": "LS"}
    body = pod("web", f"-listen=127.0.0.1:{port}", labels=labels, schedulerName="koord-scheduler", **resources)
    await there.created(namespace, body)
    await there.running(namespace, "web", port)
    return Service(there, namespace, port)


async def measured(service: Service, pace: Pace) -> dict[str, dict[str, int]]:
    """Returns latencies alone, with suppressed batch pods, and with the same ones unsuppressed."""
    await service.hold(on=True)
    await asyncio.sleep(pace.settles_s)
    found = {"quiet": await service.latency(pace)}
    await service.burn(2)
    await asyncio.sleep(pace.settles_s)
    found["held"] = await service.latency(pace)
    await service.hold(on=False)
    await asyncio.sleep(pace.settles_s)
    found["free"] = await service.latency(pace)
    await service.burn(0)
    print({name: (each["p50_us"], each["p99_us"], each["max_us"]) for name, each in found.items()}, os.getloadavg())
    return found
