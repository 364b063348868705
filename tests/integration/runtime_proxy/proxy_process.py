"""The runtime proxy as a process, and hook servers of the tests and of the node agent that register at it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cli.processes.child_process import Process
from services.node_agent.hook_server.hook_answers import HookAnswers
from services.node_agent.hook_server.hook_server import REGISTRATION, HookServer
from services.node_agent.nri.hooked_requests import NodeCgroups
from services.node_agent.runtime_hooks.batch_resource import BatchRule
from services.node_agent.runtime_hooks.cgroup_hooks import CGROUP_HOOKS, as_hook
from services.node_agent.runtime_hooks.hook_records import HookRecords
from services.node_agent.runtime_hooks.hook_rules import HookRules
from shared.runtime.task_cancellation import cancel_and_wait
from shared.runtime_hooks.registration import Registration
from tests.support.waiting import until
from tests.unit.runtime_proxy.hook_server import HookServer as AnyHookServer
from tests.unit.runtime_proxy.hook_server import register, serving

HOOK_WITHIN_S = 0.5


class ProxyProcess:
    """The proxy's process.

    Attributes:
        socket: its own.
        registrations: its folder of hook servers.
        hooks: the socket of those of the tests.
    """

    def __init__(self, folder: Path, runtime: Path, *flags: str) -> None:
        """Prepares one.

        Args:
            runtime: the runtime's socket.
        """
        self.folder = folder
        self.socket, self.registrations, self.hooks = folder / "p.sock", folder / "registered", folder / "h.sock"
        command = [sys.executable, "-m", "cli", "run", "runtime-proxy", *flags]
        command += [f"--koord-runtimeproxy-endpoint={self.socket}", f"--remote-runtime-service-endpoint={runtime}"]
        variables = {"REGISTRATIONS": str(self.registrations), "HOOK_WITHIN_S": str(HOOK_WITHIN_S)}
        env = os.environ | {f"KOORD_RUNTIME_PROXY_{name}": value for name, value in variables.items()}
        self.log = folder / "proxy.log"
        self.process = Process("runtime-proxy", command, self.log, env=env)

    def start(self) -> None:
        before = self.log.stat().st_size if self.log.exists() else 0
        self.process.start()
        self.process.wait_until(lambda: '"running"' in self.log.read_text()[before:], 20)

    @asynccontextmanager
    async def hooked(self) -> AsyncIterator[AnyHookServer]:
        """Serves hooks whose answers a test decides; registrations end with it."""
        server = AnyHookServer()
        register(self.registrations, self.hooks)
        async with serving(server, self.hooks):
            yield server
        for file in self.registrations.iterdir():
            file.unlink()

    @asynccontextmanager
    async def hooked_by_agent(self) -> AsyncIterator[HookRecords]:
        """Serves the node agent's hooks of cgroups, with the policy `Fail`; yields its records of containers."""
        rules = HookRules(frozenset(CGROUP_HOOKS), batch=BatchRule(quota=True), online=frozenset({0, 1}))
        hooks = {name: as_hook(name, lambda: rules, lambda: False) for name in CGROUP_HOOKS}
        records = HookRecords(None, 0)
        cgroups = NodeCgroups(rules=lambda: rules)
        answers = HookAnswers(hooks, lambda _: None, cgroups, records=records, stop_at_failure=False)
        socket, file = self.folder / "agent.sock", self.registrations / REGISTRATION
        registration = Registration(remote_endpoint=str(socket), failure_policy="Fail", runtime_hooks=answers.stages)
        running = asyncio.create_task(HookServer(socket, self.registrations, registration, answers).run())
        await until(lambda: asyncio.sleep(0, file.exists()), "registration")
        yield records
        await cancel_and_wait(running)
        file.unlink()
