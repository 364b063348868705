"""Each login publishes messages that no service sends, on every subject that it may use, while the system runs: over
NATS, and over MQTT where it may use that.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiomqtt
import msgspec
import pytest
import pytest_asyncio

from cli.credentials.permissions import Login, declared_logins, node
from cli.dev.local_control_plane import Cluster
from cli.doctor.all_checks import examine
from cli.doctor.finding import Finding
from cli.service_list import SERVICES, contexts, load
from cli.simulate.simulator_client import SimulatedApi
from cli.supervisor.audit_key import with_audit
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from shared.bus import Bus
from shared.events import Event
from shared.events.cluster import EvictionsHeld, NodeDeleted, PodBound
from shared.events.intents import EvictionRequested
from shared.kube.eviction_control import SUBJECT as EVICTIONS
from shared.log.admin.newest_events import newest
from shared.log.announcements import batch_subject, beacon_subject
from shared.log.database import Database
from shared.log.reader import LogReader
from shared.runtime.rebuild import rebuild
from shared.runtime.service import Service
from shared.runtime.task_cancellation import cancel_and_wait
from tests.cluster.fixtures import MakeNodes
from tests.integration.security.conftest import SHARDS, Secured, mqtt_client
from tests.integration.security.conftest import members as manifests
from tests.integration.security.expected_permissions import Tried
from tests.support.forged_messages import BODIES, OVERSIZED, forgeries
from tests.support.pods import written_pod
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE = "node-a"
PODS = 5
LOGINS = [*declared_logins(SERVICES, SHARDS), node(NODE)]
OTHERS = (
    "the login .*operator",
    "the login .*auditor",
    f"the login of node {NODE}",
    r"the login auditor sends messages on \$JS\.API\.CONSUMER\..* that audit rejects",
    r"the login koord\.metrics-ingest-0.* sends messages on \$JS\.API\.STREAM\..* that .*ingest-0.* rejects",
)
"""Senders that announce nothing: they are named for what services reject, to JetStream too."""
RUNNING = [name for name in SERVICES if name != "gateway"]
"""The simulator writes `cluster` here."""

SIMULATED = {"KOORD_SIMULATOR_NODES": "3", "KOORD_SIMULATOR_PODS": str(PODS), "KOORD_SIMULATOR_REPORT_INTERVAL_S": "0"}

AT_GATEWAY = ("gateway", "scheduler", "quota-ledger")
"""Services beside a real Kubernetes API."""
OPERATOR_AT_GATEWAY = f"the login operator sends messages on .*{EVICTIONS}.* that gateway rejects"


class Running(NamedTuple):
    """The system, with a database of its own."""

    secured: Secured
    endpoints: Endpoints
    supervisor: Supervisor
    database: Database
    folder: Path

    async def examine(self) -> list[Finding]:
        """Examines the system as `koord doctor` beside its services does."""
        pages = {name: unit.http for name, unit in self.supervisor.units.items()}
        return await examine(msgspec.structs.replace(self.endpoints, services=pages), self.folder)

    @property
    def reader(self) -> LogReader:
        return LogReader(self.database)


@asynccontextmanager
async def started(
    secured: Secured, name: str, services: Sequence[str], env: dict[str, str], folder: Path
) -> AsyncIterator[Running]:
    """Starts services on a database of this name, with every shard of each."""
    endpoints = await secured.servers.create_database(name)
    specs = [
        Spec(one.name, service.name, {"KOORD_SHARD": str(shard), **env})
        for service in map(load, services)
        for shard in range(SHARDS if service.writes.endswith("-*") else 1)
        for one in [service.member(shard, SHARDS)]
    ]
    database = Database(f"{secured.owner.rpartition('/')[0]}/{name}")
    async with Supervisor(with_audit(specs, folder), endpoints, folder) as supervisor:
        await supervisor.wait_leading(240)
        yield Running(secured, endpoints, supervisor, database, folder)
    await database.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with started(secured, "forged", RUNNING, SIMULATED, tmp_path_factory.mktemp("running")) as found:
        await until(lambda: _bound(found), holds=lambda count: count == PODS)
        yield found


async def _bound(system: Running) -> int:
    return len(await newest(system.database, "cluster", [PodBound], 100))


def subjects_of(login: Login) -> list[str]:
    """Returns every subject that a login may publish on; a wildcard stands for one of its subjects."""
    named = (one.replace("koord.node.*", f"koord.node.{NODE}") for one in login.bus.publish)
    return [one.replace("*", "cluster").replace(">", "x") for one in named]


async def forged_event(system: Running, context: str) -> Event:
    """Returns an event with an effect that would be seen: a node is deleted, or a running pod must be evicted."""
    (bound,) = await newest(system.database, "cluster", [PodBound], 1)
    assert isinstance(bound.record.event, PodBound)
    pod = bound.record.event
    if context == "cluster":
        return NodeDeleted(node=pod.node, node_uid="forged")
    return EvictionRequested(pod=pod.pod, pod_uid=pod.pod_uid, reason="forged")


async def announcements_for(system: Running, subject: str) -> list[bytes]:
    """Returns forged announcements for the subject of a context; none for another subject."""
    for context in contexts():
        if subject in {batch_subject(context), beacon_subject(context)}:
            other = "scheduling" if context == "cluster" else "cluster"
            head, epoch = await system.reader.head(context), await system.reader.epoch(context)
            event = await forged_event(system, context)
            found = forgeries(context, other, head, epoch, event).values()
            return [message for messages in found for message in messages]
    return []


class Forger:
    """A connection with exactly the permissions of a login.

    Attributes:
        rounds: how often it has published everything.
    """

    def __init__(self, system: Running, login: Login) -> None:
        self.login = login
        self.rounds = 0
        self._system = system

    async def run(self) -> None:
        """Publishes until it is cancelled; what is oversized once, so that the bus is left to others."""
        client = await Tried().meet(self._system.secured.env(self.login.name)["KOORD_NATS"])
        try:
            while True:
                for subject in subjects_of(self.login):
                    announcements = await announcements_for(self._system, subject)
                    sizes = 100_000 if self.rounds else 2**20
                    for body in (*announcements, *BODIES, OVERSIZED):
                        if len(body) <= sizes:
                            await client.publish(subject, body, reply=f"_INBOX.{self.login.bus.user}.x")
                    await client.flush()
                self.rounds += 1
                assert client.refused["publish"] == set(), "the test's subjects are those of the login"
                await asyncio.sleep(0.1)
        finally:
            with suppress(Exception):
                await client.close()


ANSWER_S = 1.0
"""Seconds that a forger waits for the broker's answer: it has none for what a login may not send."""


class MqttForger(Forger):
    """The same over MQTT with QoS 1, every other time as a retained message; the broker closes the connection of a
    login that sends what is larger than it accepts.
    """

    async def run(self) -> None:
        """Publishes until it is cancelled."""
        while True:
            for subject in subjects_of(self.login):
                for number, body in enumerate((*await announcements_for(self._system, subject), *BODIES, OVERSIZED)):
                    with suppress(aiomqtt.MqttError):
                        await self._publish(subject.replace(".", "/"), body, retain=number % 2 == self.rounds % 2)
            self.rounds += 1

    async def _publish(self, topic: str, body: bytes, *, retain: bool) -> None:
        """Publishes one message. What is oversized is sent once."""
        if len(body) > 100_000 and self.rounds:
            return
        async with mqtt_client(self._system.secured, self.login.name, identifier=f"forger-{self.login.name}") as client:
            await client.publish(topic, body, qos=1, retain=retain, timeout=ANSWER_S)


@asynccontextmanager
async def forging(system: Running, forger: type[Forger] = Forger) -> AsyncIterator[list[Forger]]:
    """Every login forges during the block; over MQTT, every login that may use it."""
    logins = LOGINS if forger is Forger else [one for one in LOGINS if "KOORD_MQTT" in system.secured.env(one.name)]
    forgers = [forger(system, login) for login in logins]
    tasks = [asyncio.create_task(forger.run()) for forger in forgers]
    try:
        yield forgers
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await cancel_and_wait(*tasks)


def forgers_named(found: list[Finding]) -> str:
    return "\n".join(one.what for one in found if one.severity == "error" and "does not send" in one.what)


def senders_of_rejected(found: list[Finding]) -> str:
    return "\n".join(one.what for one in found if one.area == "credentials" and " sends messages on " in one.what)


async def writers_epochs(system: Running) -> dict[str, int]:
    return {context: await system.reader.epoch(context) for context in contexts()}


async def a_pod_is_bound(system: Running, name: str) -> None:
    """Creates a pod through the simulator and waits for its binding: all services on the way work."""
    bus = Bus(system.endpoints.nats, name="test")
    await bus.start()
    before = await _bound(system)
    await SimulatedApi(bus).create(
        written_pod(name, namespace="default", requests={"cpu": "1"}, schedulerName="koord-scheduler")
    )
    await until(lambda: _bound(system), holds=lambda count: count == before + 1)
    await bus.close()


async def test_forged_messages_of_every_login_change_no_state_and_stop_nobody_and_the_doctor_names_their_senders(
    running: Running,
) -> None:
    epochs = await writers_epochs(running)
    before = await running.examine()
    assert (forgers_named(before), senders_of_rejected(before)) == ("", "")
    async with forging(running) as forgers:
        await until(lambda: all(forger.rounds for forger in forgers))
        writers = [forger.login.name for forger in forgers if forger.login.log and forger.login.log.writes]

        async def unnamed() -> list[str]:
            found = await running.examine()
            named = forgers_named(found)
            others = [name for name in OTHERS if not re.search(name, senders_of_rejected(found))]
            return [name for name in writers if f"koord.{name} " not in named] + others

        await until(unnamed, "senders that the doctor does not name", holds=lambda names: not names)
        await a_pod_is_bound(running, "meanwhile")
    await a_pod_is_bound(running, "afterwards")
    await nothing_has_changed(running, epochs)
    await until(running.examine, holds=lambda found: forgers_named(found) == "")
    await states_are_those_of_the_log(running, RUNNING)


async def test_over_mqtt_with_qos_1_they_change_no_state_and_stop_nobody_and_the_doctor_names_their_senders(
    secured: Secured, tmp_path: Path
) -> None:
    async with started(secured, "forged_mqtt", RUNNING, SIMULATED, tmp_path) as system:
        await until(lambda: _bound(system), holds=lambda count: count == PODS)
        epochs = await writers_epochs(system)
        before = await system.examine()
        assert (forgers_named(before), senders_of_rejected(before)) == ("", "")
        async with forging(system, MqttForger) as forgers:
            names = {forger.login.name for forger in forgers}
            assert names == {
                NODE,
                *(one.name for one in manifests(("metrics-ingest", "action-ingest", "device-discovery"))),
            }
            await until(lambda: all(forger.rounds for forger in forgers))

            async def unnamed() -> list[str]:
                found = await system.examine()
                named, rejected = forgers_named(found), senders_of_rejected(found)
                missing = [name for name in names - {NODE} if f"koord.{name} " not in named]
                return missing if f"the login of node {NODE}" in rejected else [*missing, NODE]

            await until(unnamed, "senders that the doctor does not name", holds=lambda names: not names)
            await a_pod_is_bound(system, "meanwhile")
        await a_pod_is_bound(system, "afterwards")
        await nothing_has_changed(system, epochs)
        await states_are_those_of_the_log(system, RUNNING)


async def nothing_has_changed(system: Running, epochs: dict[str, int]) -> None:
    """No service has restarted or lost its lead, and no forged event is in a log."""
    units = system.supervisor.units.values()
    await until(lambda: all(unit.status and unit.status.state == "leading" and unit.status.bus for unit in units))
    assert {unit.spec.name: unit.why for unit in units if unit.restarts} == {}
    assert await writers_epochs(system) == epochs
    for context in contexts():
        assert await newest(system.database, context, [EvictionRequested, NodeDeleted, EvictionsHeld]) == []


async def states_are_those_of_the_log(system: Running, names: Sequence[str]) -> None:
    await system.supervisor.stop()  # each service stores a snapshot of its State
    for service in members(names):
        rebuilt = await rebuild(service, system.database)
        assert rebuilt.upto is not None, service.name
        assert rebuilt.equal, (service.name, rebuilt.path, rebuilt.event)


def members(names: Sequence[str]) -> list[Service]:
    found = map(load, names)
    return [one.member(n, SHARDS) for one in found for n in range(SHARDS if one.writes.endswith("-*") else 1)]


async def test_at_a_gateway_they_write_nothing_to_the_cluster(
    secured: Secured, kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    """Rubbish and forged announcements of all logins, and requests of the operator's login, reach the real gateway."""
    kube_nodes("forged-1")
    path = f"/api/v1/namespaces/{namespace}/pods"
    env = {"KOORD_GATEWAY_KUBECONFIG": str(kube_cluster.kubeconfig())}
    async with started(secured, "forged_gateway", AT_GATEWAY, env, tmp_path) as system:

        async def bound(name: str) -> dict[str, Any]:
            pod = written_pod(name, requests={"cpu": "1"}, schedulerName="koord-scheduler")
            await asyncio.to_thread(kube_cluster.api.call, "POST", path, pod)

            async def there() -> dict[str, Any]:
                return await asyncio.to_thread(kube_cluster.api.call, "GET", f"{path}/{name}")

            await until(there, holds=lambda found: bool(found["spec"].get("nodeName")))
            return await there()

        first = await bound("before")
        await until(lambda: _bound(system), holds=lambda count: count == 1)
        epochs = await writers_epochs(system)
        async with forging(system) as forgers:
            await until(lambda: all(forger.rounds for forger in forgers))

            async def unnamed() -> list[str]:
                found = await system.examine()
                named, rejected = forgers_named(found), senders_of_rejected(found)
                missing = [name for name in AT_GATEWAY if f"koord.{name} " not in named]
                return missing if re.search(OPERATOR_AT_GATEWAY, rejected) else [*missing, "operator"]

            await until(unnamed, "senders that the doctor does not name", holds=lambda names: not names)
            await bound("meanwhile")
        await bound("afterwards")
        await nothing_has_changed(system, epochs)
        now = await asyncio.to_thread(kube_cluster.api.call, "GET", f"{path}/before")
        assert now == first, "nobody has written to the pod"
        await states_are_those_of_the_log(system, AT_GATEWAY)
