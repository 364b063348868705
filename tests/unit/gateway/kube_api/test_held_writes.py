"""A write is sent only while the system holds its Lease, also where the tries of an effect outlast that."""

import asyncio

import pytest

from cli.dev.fault_simulation import cluster_objects
from cli.dev.fault_simulation.api_transport import ApiTransport, MemoryConnections
from cli.dev.fault_simulation.memory_api import ApiServer
from cli.dev.fault_simulation.virtual_loop import Process
from services.gateway.cluster_lease import ClusterLease, Identity
from services.gateway.kube_api.api_errors import Busy
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from services.gateway.watch.unread_resources import Outages

KEY = f"{cluster_objects.NAMESPACE}/web-0"


async def test_a_write_is_held_once_the_lease_has_expired_and_sent_again_once_it_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ApiServer(1, lambda: 0)
    server.create("nodes", cluster_objects.node("n1"))
    uid = server.create("pods", cluster_objects.pod("web-0", "plain", 1))["metadata"]["uid"]
    now_s = 100.0
    monkeypatch.setattr("services.gateway.cluster_lease._now_s", lambda: now_s)
    async with KubeApi(connections=MemoryConnections(ApiTransport(server, 1), Process("gateway"))) as api:
        outages = Outages(asyncio.get_running_loop().time)
        lease = ClusterLease(
            api, GatewaySettings(lease_s=3), Identity("log", "one"), outages, lambda: 0, lambda _: None
        )
        assert await lease.claim()
        lease.hold_writes(api)
        now_s += 3.0
        with pytest.raises(Busy, match="the Lease has expired"):
            await api.create_binding(KEY, uid=uid, node="n1")
        assert "nodeName" not in server.objects["pods"][KEY]["spec"]
        assert await lease.claim()  # its own requests are sent
        await api.create_binding(KEY, uid=uid, node="n1")
    assert server.objects["pods"][KEY]["spec"]["nodeName"] == "n1"
