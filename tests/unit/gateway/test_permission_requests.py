"""A flood of requests for the gateway's permissions costs the API server one check, not one for each message."""

import asyncio

import pytest

from services.gateway import rbac_permission_check
from services.gateway.rbac_permission_check import SHARED_S, SharedCheck
from services.gateway.settings import GatewaySettings
from shared.kube.rbac_permissions import Permissions


class Clock:
    settings = GatewaySettings()

    def now_ns(self) -> int:
        return 1


async def test_requests_that_come_together_share_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    checks, now = [0], [0.0]

    async def check(_settings: GatewaySettings, now_ns: int) -> Permissions:
        checks[0] += 1
        await asyncio.sleep(0)
        return Permissions("server", now_ns)

    monkeypatch.setattr(rbac_permission_check, "check", check)
    shared = SharedCheck(lambda: now[0])
    answers = await asyncio.gather(*(shared.serve(Clock(), b"\x00") for _ in range(100)))  # type: ignore[arg-type]
    assert (checks[0], len(set(answers))) == (1, 1)
    now[0] = SHARED_S
    await shared.serve(Clock(), b"")  # type: ignore[arg-type]
    assert checks[0] == 1
    now[0] = SHARED_S + 0.1
    await shared.serve(Clock(), b"")  # type: ignore[arg-type]
    assert checks[0] == 2
