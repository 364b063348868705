"""All checks, in order; one that cannot be made becomes a finding of its own and the others go on."""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from cli.bus_connection import bus_of, login_of
from cli.commands.active_config import status_of
from cli.doctor import check_bus as bus_checks
from cli.doctor import check_cluster, check_postgres, check_services
from cli.doctor.check_misplaced_configs import about_misplaced_configs, misplaced_configs
from cli.doctor.check_quotas import about_ignored_quota_settings, about_rejected_quotas
from cli.doctor.check_rejected_messages import about_rejected, logins
from cli.doctor.check_rejected_writes import about_rejected_writes, rejected_writes
from cli.doctor.check_second_systems import about_second_systems
from cli.doctor.check_services import NEEDED
from cli.doctor.check_unread_objects import (
    about_ignored_pod_settings,
    about_ignored_settings,
    about_missing_nodes,
    about_rejected_reservations,
    about_unread_objects,
)
from cli.doctor.finding import Finding
from cli.doctor.one_outage import POSTGRES, OutageFinding, one_for_each_outage
from cli.doctor.received_announcements import ReceivedAnnouncements, about_forged
from cli.quota.recorded_accounts import recorded_accounts_in
from cli.quota.render import ignored as ignored_of_quotas
from cli.quota.render import rejected as rejected_quotas
from cli.scheduling.recorded_state import scheduler_state
from cli.service_list import contexts as required_contexts
from cli.simulated_cluster import is_simulators
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.system_folder import systems_in, wal_on_another_disk
from cli.terminal.awaited import Awaited
from cli.terminal.durations import size
from cli.top.readings import STATUS_S, read_statuses
from services.audit.service_manifest import stream_of
from services.scheduler.explain.invalid_reservations import rejected_reservations
from services.scheduler.explain.objects_without_plugin import objects_without_plugin
from services.scheduler.explain.waiting_order_config import rules_in_force
from shared.bus import NoResponse, NotPermitted
from shared.bus.login import BadLogin
from shared.bus.server_check import BusRefused, BusUnreachable
from shared.bus.server_check import look as look_at_bus
from shared.errors import KoordError
from shared.events.cluster import ClusterIdentified, IntentRefused, MissingPermission, SecondSystemRefused
from shared.events.devices import NodeDevicesRemoved, NodeDevicesReported
from shared.events.log import WriterStarted
from shared.events.slo import NodeReportsBelieved, NodeReportsIgnored
from shared.kube.eviction_control import SUBJECT as EVICTIONS
from shared.kube.eviction_control import EvictionCommand, EvictionStatus
from shared.kube.instants import SECOND
from shared.kube.rbac_permissions import SUBJECT, Permissions
from shared.kube.short_lists import SHORT_LISTS, GatewayLists
from shared.log.admin import lag, server_check
from shared.log.admin.followers import list_parked
from shared.log.admin.newest_events import newest, newest_by_key, writer_of
from shared.log.admin.session import opened
from shared.log.announcements import batch_subject, beacon_subject
from shared.log.database import DatabaseDenied
from shared.log.disk_space import free_share, free_share_at
from shared.log.reader import LogReader
from shared.log.unusable_database import DatabaseUnreachable
from shared.runtime.status import Status
from shared.runtime.task_cancellation import cancel_and_wait

LISTENED_S = 3.2
"""Beacons come each second; on a busy machine one comes late."""
ANSWER_S = 4.0
"""Of Postgres, and of the gateway, which itself waits for the API server 3 s at most, and then sends it some eighty
requests."""
REFUSALS = 50
REFUSED_WITHIN_NS = 24 * 3600 * SECOND
"""Age up to which a refused intent is reported."""

T = TypeVar("T")
Statuses = Mapping[str, Status | None]
"""Name of a process -> its status; None without a response."""

_OPERATOR = "use the operator's login: source env/operator.env of the credentials' folder, docs/security.md"


async def examine(endpoints: Endpoints, folder: Path, awaited: Awaited | None = None) -> list[Finding]:
    """Runs all checks side by side; a second or two, or up to `ANSWER_S` where a server does not respond.

    Args:
        awaited: records what is waited for.
    """
    awaits = (awaited or Awaited()).awaits
    tasks: list[asyncio.Task[Any]] = []

    def begin(name: str, check: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        tasks.append(task := asyncio.create_task(awaits(name, check)))
        return task

    async with AsyncExitStack() as open_:
        open_.push_async_callback(lambda: cancel_and_wait(*tasks))
        reached, meeting = begin("Postgres", _database(endpoints)), begin("NATS", _bus(endpoints.nats, open_))
        requested = begin("the status of the services", _statuses(endpoints))
        disks = begin("the disk", about_disks(folder))
        found = await reached
        about_bus, received = await meeting
        found += about_bus
        of_log: list[asyncio.Task[list[Finding]]] = []
        if all(one.severity != "error" or one.area not in {"postgres", "credentials"} for one in found):
            of_log = [
                begin("beacons of the writers", _writers(endpoints, received, requested)),
                begin("the log", _log(endpoints)),
                begin("the gateway", _gateway(endpoints, has_bus=received is not None)),
                begin("the size of the log", _disk_by_size(endpoints)),
            ]
        statuses = await requested
        found += [*check_services.about_unreachable(statuses), *about_rejected(statuses, logins())]
        for task in of_log:
            found += await task
        found += await disks
    return one_for_each_outage(found)


async def _database(endpoints: Endpoints) -> list[Finding]:
    found: list[Finding] = []
    async with _check("postgres", found), opened(endpoints.postgres) as database, asyncio.timeout(ANSWER_S):
        seen = await server_check.look(database)
        found += check_postgres.about_server(seen, endpoints.postgres)
        found.append(check_postgres.about_clock(seen))
        async with _check("credentials", found):
            schema = check_postgres.about_schema(await server_check.schema(database))
            found.append(schema)
            if schema.severity == "ok":
                found += check_postgres.about_contexts(required_contexts(), await server_check.declared(database))
    return found


async def _bus(url: str, open_: AsyncExitStack) -> tuple[list[Finding], ReceivedAnnouncements | None]:
    """Checks the bus, and receives beacons until `open_` is closed; None when it cannot subscribe."""
    if not url:
        what, remedy = (
            "no address of NATS is known",
            "name it in KOORD_NATS; followers poll Postgres each second meanwhile",
        )
        return [Finding("error", "nats", what, remedy)], None
    heads = [beacon_subject(context) for context in sorted(required_contexts())]
    try:
        login = login_of(url)
        seen = await look_at_bus(
            login, [*heads, *(batch_subject(context) for context in sorted(NEEDED))], stream=stream_of("cluster")
        )
    except (BusRefused, BadLogin) as error:
        return [Finding("error", "credentials", str(error), _OPERATOR)], None
    except BusUnreachable as error:
        remedy = f"{error.remedy}; until then followers poll Postgres each second and questions get no answer"
        return [Finding("error", "nats", str(error), remedy)], None
    found = list(bus_checks.about_bus(seen, login.server))
    if all(head in seen.refused for head in heads):
        return found, None
    received, bus = ReceivedAnnouncements(), bus_of(url, "koord doctor")
    await bus.start()
    open_.push_async_callback(bus.close)
    for context in sorted(required_contexts()):
        if beacon_subject(context) not in seen.refused:
            await received.subscribe(bus, context)
    return found, received


async def _statuses(endpoints: Endpoints) -> Statuses:
    """Reads the status of the services whose address is known; needs neither bus nor log."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=STATUS_S)) as session:
        return await read_statuses(session, endpoints.services)


async def _writers(
    endpoints: Endpoints, received: ReceivedAnnouncements | None, requested: Awaitable[Statuses]
) -> list[Finding]:
    """Checks the leader of each context by its beacons. A leader whose status shows that it announces needs none."""
    found: list[Finding] = []
    async with _check("services", found), opened(endpoints.postgres) as database:
        reader = LogReader(database)
        writers = {context: await writer_of(database, context) for context in await reader.contexts()}
        if received is None:
            return list(check_services.about_writers(writers, None))
        statuses = await requested
        announcing = check_services.announcing(writers, statuses)
        epochs = {
            name: one.record.event.epoch
            for name, one in writers.items()
            if one and isinstance(one.record.event, WriterStarted) and name not in announcing
        }
        await received.wait_for(epochs, LISTENED_S)
        await received.compare(reader)
        found += about_forged(received.forged)
        found += check_services.about_writers(writers, {**announcing, **received.beacons}, statuses)
    return found


async def _log(endpoints: Endpoints) -> list[Finding]:
    """Checks the followers of the log, and what is recorded in it."""
    found: list[Finding] = []
    async with _check("postgres", found), opened(endpoints.postgres) as database:
        contexts = await LogReader(database).contexts()
        writers = {context: await writer_of(database, context) for context in contexts}
        simulated = is_simulators(writers.get("cluster"))
        async with _check("followers", found):
            found += check_services.about_parked(await list_parked(database))
            found += check_services.about_followers(await lag.behind(database))
        async with _check("configuration", found):
            found += check_cluster.about_configuration(await status_of(database), simulated=simulated)
            objects: Mapping[str, Sequence[str]] = {}
            namespaces: set[str] = set()
            if "scheduling" in contexts:
                view = await scheduler_state(LogReader(database))
                rules = rules_in_force(view)
                found += about_missing_nodes(view, simulated=simulated)
                found += about_unread_objects(objects_without_plugin(view, rules))
                found += about_ignored_settings(view, rules, simulated=simulated)
                found += about_ignored_pod_settings(view, rules.schedulers, simulated=simulated)
                found += about_rejected_reservations(list(rejected_reservations(view)), simulated=simulated)
                objects = view.quota.objects_by_name()
                namespaces = {each.pod_class.namespace for each in view.pods.values() if each.pod_class is not None}
            misplaced = await misplaced_configs(database, namespaces)
            found += about_misplaced_configs(misplaced, simulated=simulated)
            if (ledger := await recorded_accounts_in(LogReader(database))) is not None:
                found += about_rejected_quotas(list(rejected_quotas(ledger.projection, objects)), simulated=simulated)
                found += about_ignored_quota_settings(list(ignored_of_quotas(ledger.projection)), simulated=simulated)
        async with _check("cluster", found):
            identified = await newest(database, "cluster", [ClusterIdentified])
            found += check_cluster.about_identity(identified)
            refusals = await newest(database, "cluster", [SecondSystemRefused])
            found += about_rejected_writes(await rejected_writes(database))
            found += about_second_systems(identified, refusals, writers.get("cluster"), time.time_ns())
        async with _check("credentials", found):
            refused = await newest(database, "cluster", [IntentRefused], REFUSALS)
            since_ns = time.time_ns() - REFUSED_WITHIN_NS
            found += check_cluster.about_refused_intents([one for one in refused if one.record.at_ns > since_ns])
        async with _check("nodes", found):
            if "slo" in contexts:
                recorded = await newest_by_key(database, "slo", [NodeReportsIgnored, NodeReportsBelieved])
                found += check_cluster.about_ignored_reports(recorded, simulated=simulated)
            for context in (name for name in contexts if name.startswith("devices-")):
                recorded = await newest_by_key(database, context, [NodeDevicesReported, NodeDevicesRemoved])
                found += check_cluster.about_ignored_inventories(recorded)
            found += check_cluster.about_nodes(await lag.node_reports(database), simulated=simulated)
        async with _check("disk", found):
            found += check_services.about_partitions(
                [await server_check.size_of(database, context) for context in contexts]
            )
    return found


async def _gateway(endpoints: Endpoints, *, has_bus: bool) -> list[Finding]:
    """Checks what the gateway's account may do, which lists it believes, and its evictions, by its own account."""
    found: list[Finding] = []
    async with _check("rbac", found), opened(endpoints.postgres) as database:
        writer = await writer_of(database, "cluster")
        if writer is None:
            return []
        if is_simulators(writer):
            return [Finding("note", "rbac", "the cluster is simulated: there is nothing to be permitted")]
        answered = await _gateway_answers(endpoints.nats, found) if has_bus else None
        refusals = await newest(database, "cluster", [MissingPermission], REFUSALS)
        found += check_cluster.about_refusals(refusals, answered)
    return found


async def _gateway_answers(nats: str, found: list[Finding]) -> Permissions | None:
    """Requests all three at once, and adds what is found; returns what its account may do, None without a response."""
    payloads = {SUBJECT: b"", SHORT_LISTS: b"", EVICTIONS: msgspec.json.encode(EvictionCommand("status"))}
    bus = bus_of(nats, "koord doctor")
    await bus.start()
    try:
        requests = (bus.request(subject, data, deadline_s=ANSWER_S) for subject, data in payloads.items())
        permissions, lists, evictions = await asyncio.gather(*requests, return_exceptions=True)
    finally:
        await bus.close()
    answered: Permissions | None = None
    if isinstance(permissions, bytes):
        answered = msgspec.json.decode(permissions, type=Permissions)
        found += check_cluster.about_permissions(answered)
    if isinstance(lists, bytes):
        found += check_cluster.about_lists(msgspec.json.decode(lists, type=GatewayLists))
    if isinstance(evictions, bytes):
        found += check_cluster.about_evictions(msgspec.json.decode(evictions, type=EvictionStatus))
    missing = {
        "what its account may do": permissions, "which lists it believes": lists, "which evictions wait": evictions
    }  # fmt: skip
    for error in (one for one in missing.values() if isinstance(one, NotPermitted)):
        found.append(Finding("warning", "credentials", str(error), _OPERATOR))
    if unknown := [name for name, one in missing.items() if isinstance(one, NoResponse)]:
        verb = "is" if len(unknown) == 1 else "are"
        what = f"the gateway did not answer within {ANSWER_S:g} s, so {', '.join(unknown)} {verb} not known"
        remedy = "see that it runs; `koord top` shows its state, its log says more"
        found.append(Finding("warning", "rbac", what, remedy))
    for other in missing.values():
        if isinstance(other, BaseException) and not isinstance(other, (NotPermitted, NoResponse)):
            raise other
    return answered


async def about_disks(folder: Path) -> list[Finding]:
    """The free shares of the disks of the log and of Postgres' write-ahead log, also where a full one has ended Postgres:
    by the folders that the services watch, or those of a system that runs here.
    """
    systems = [system / "postgres" for system in systems_in(folder) if (system / "postgres").is_dir()]
    own_wal = next(filter(None, map(wal_on_another_disk, systems)), "")
    found = list[Finding]()
    for setting, own in (("KOORD_DISK_PATH", folder if systems else ""), ("KOORD_WAL_DISK_PATH", own_wal)):
        path = os.environ.get(setting, "") or str(own)
        if not path:
            continue
        try:
            free, disk = await free_share_at(path), shutil.disk_usage(path)
        except OSError as error:
            found.append(Finding("warning", "disk", f"{setting} is {path}: {error}", "name a folder on that disk"))
        else:
            where = f"{path}: {size(disk.free)} of {size(disk.total)}"
            found.append(check_services.about_disk(free, where, is_wal=setting == "KOORD_WAL_DISK_PATH"))
    return found


async def _disk_by_size(endpoints: Endpoints) -> list[Finding]:
    """The free share of a disk of which only the size is known."""
    size, found = os.environ.get("KOORD_DISK_GB", ""), list[Finding]()
    if not size or os.environ.get("KOORD_DISK_PATH", ""):
        return found
    from shared.runtime.service import Environment  # only here: it imports what a service runs with

    async with _check("disk", found), opened(endpoints.postgres) as database:
        free = await free_share(database, "", Environment.load("", {**os.environ, "KOORD_POSTGRES": ""}).disk_gb)
        if free is not None:
            found.append(check_services.about_disk(free, f"of {size} GB, without what other programs take"))
    return found


@contextlib.asynccontextmanager
async def _check(area: str, found: list[Finding]) -> AsyncIterator[None]:
    """A check that may be refused: that is a finding, and the end of this check alone."""
    try:
        yield
    except DatabaseDenied as error:
        found.append(Finding("error" if area == "postgres" else "warning", "credentials", str(error), _OPERATOR))
    except DatabaseUnreachable as error:
        found.append(OutageFinding("error", "postgres", error.what, error.remedy, server=POSTGRES))
    except KoordError as error:
        found.append(Finding("error", area, str(error), "see `koord events` and the service's log"))
