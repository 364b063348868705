"""A command's connection to the bus, with the login of the environment, as a service has it."""

import asyncio
import logging
import os
import time
from contextlib import suppress

from cli.silent_service import NoLeader, unless_silent
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.gateway_trouble import pages_of
from shared.bus import Bus, NoResponse
from shared.bus.bus import NOT_PERMITTED, NOT_REACHABLE
from shared.bus.login import Login
from shared.bus.unusable_bus import bus_remedy
from shared.errors import KoordError


def _is_no_error_of_a_command(record: logging.LogRecord) -> bool:
    """Leaves out a line about a subject that the login may not use, or a bus that is away: a command ends with the error
    of its request.
    """
    return record.msg not in (NOT_PERMITTED, NOT_REACHABLE)


log = logging.getLogger(__name__)
log.addFilter(_is_no_error_of_a_command)

NOWHERE = "nats://127.0.0.1:1"
"""For an installation whose bus is not known: nothing answers there."""

ANSWER_S = 10.0
CONNECTING_S = 1.0
"""A command waits for the bus no longer than this after the first attempt."""

LOG_S = 2.0
"""A command waits no longer for what only the log says: an operator may need it while Postgres is away."""


def login_of(url: str) -> Login:
    """The login of KOORD_NATS, KOORD_NATS_NKEY and KOORD_NATS_CA.

    Raises:
        BadLogin: the URL is none.
    """
    environment = os.environ
    nkey, ca = environment.get("KOORD_NATS_NKEY", ""), environment.get("KOORD_NATS_CA", "")
    login = Login.of(url or NOWHERE, nkey=nkey, ca=ca)
    if login.ca or login.server.startswith("tls:"):
        # Python says at the end of each TLS connection of the client that its answer to that end is not needed.
        logging.getLogger("asyncio").setLevel(logging.ERROR)
    return login


def bus_of(url: str, name: str) -> Bus:
    """A connection that is not started yet.

    Raises:
        BadLogin: the URL is none.
    """
    login = login_of(url)
    return Bus(url or NOWHERE, name=name, nkey=login.nkey, ca=login.ca, logger=log)


async def require_gateway(endpoints: Endpoints) -> None:
    """Ends a command at once that no gateway will answer. Without Postgres this may not be known: the request goes out.

    Raises:
        KoordError: the cluster is a simulated one.
    """
    if await _is_simulated(endpoints) is True:
        raise KoordError("the cluster is simulated: it has no gateway, whose lists and evictions could be controlled")


async def require_simulator(endpoints: Endpoints) -> None:
    """Ends a command at once that no simulator will answer. Without Postgres this may not be known: the request goes out.

    Raises:
        KoordError: the cluster is a real one.
    """
    if await _is_simulated(endpoints) is False:
        raise KoordError("the log is that of a real cluster, which no simulator serves: use kubectl")


async def _is_simulated(endpoints: Endpoints) -> bool | None:
    """Returns whether the cluster is a simulated one, by its services or its log; None where nothing shows it."""
    from cli.simulated_cluster import is_simulators
    from shared.log.admin.newest_events import writer_of
    from shared.log.admin.session import opened

    for service, is_simulated in (("gateway", False), ("simulator", True)):
        if pages_of(service, endpoints.services):
            return is_simulated
    with suppress(KoordError, TimeoutError):
        async with asyncio.timeout(LOG_S), opened(endpoints.postgres) as database:
            writer = await writer_of(database, "cluster")
            return None if writer is None else is_simulators(writer)
    return None


async def request_leading(endpoints: Endpoints, name: str, service: str, subject: str, data: bytes = b"") -> bytes:
    """Sends a request to the replica of a service that leads, over a connection of its own; returns the response.

    Args:
        name: of the command, for the server's list of connections.

    Raises:
        NoLeader: none responds.
        KoordError: the bus cannot be reached.
    """
    bus = bus_of(endpoints.nats, name)
    await bus.start()
    try:
        await require_bus(bus, service)
        return await unless_silent(bus.request(subject, data, deadline_s=ANSWER_S), service, endpoints)
    except NoResponse as error:
        raise NoLeader(
            f"no {service} responded within {ANSWER_S:g} s: see that one leads (`koord top`), and its log"
        ) from error
    finally:
        await bus.close()


async def require_bus(bus: Bus, service: str) -> None:
    """Returns once there is a connection, or the login is refused, of which the request reports.

    Raises:
        KoordError: there is none after CONNECTING_S.
    """
    ends = time.monotonic() + CONNECTING_S
    while not (bus.connected or bus.refused):
        if time.monotonic() > ends:
            reason = bus.unreachable.reason if bus.unreachable else "no response"
            what = f"NATS at {bus.login.server} cannot be reached: {reason}"
            raise KoordError(f"the {service} cannot be requested: {what}; {bus_remedy(reason)}")
        await asyncio.sleep(0.05)
