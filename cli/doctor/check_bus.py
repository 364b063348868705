"""Checks of the bus: connection, message size, and beacons of the writers."""

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from cli.doctor.check_postgres import clock_finding
from cli.doctor.finding import Finding
from shared.bus.server_check import Server
from shared.log.announcements import LARGEST

SMALLEST_PAYLOAD = 2 * LARGEST
"""One announced batch with its envelope fits by far; questions and answers may be larger."""


def about_bus(server: Server, where: str) -> Iterator[Finding]:
    """Checks version, limits, JetStream and logins; `where` is the server's address without a login."""
    what = f"NATS {server.version} at {where} answers in {server.round_trip_s * 1000:.1f} ms"
    yield Finding("ok", "nats", what)
    if server.max_payload < SMALLEST_PAYLOAD:
        yield Finding(
            "error",
            "nats",
            f"max_payload of {where} is {server.max_payload:,} bytes: batches of events do not pass, followers read them from Postgres",
            f"set max_payload = {SMALLEST_PAYLOAD} or more in the server's configuration",
        )
    if not server.jetstream:
        yield Finding(
            "warning",
            "nats",
            f"JetStream is off at {where}: no event stream for outsiders, no strategies for node agents on NATS",
            "add a jetstream block with a store_dir to the server's configuration",
        )
    if not is_loopback(where):
        if not server.authenticated:
            yield Finding(
                "warning",
                "credentials",
                f"{where} lets everybody in: whoever reaches it reads every event and can pose as a writer",
                "give every service a login of its own: `koord credentials init`, docs/security.md",
            )
        if not server.encrypted:
            yield Finding(
                "warning",
                "credentials",
                f"the connection to {where} is not encrypted",
                "use TLS: `koord credentials init` makes certificates and a configuration, docs/security.md",
            )
    if server.refused:
        yield Finding(
            "warning",
            "credentials",
            f"this login may not subscribe to {', '.join(server.refused)}, so what depends on them cannot be checked",
            "use the operator's login: source env/operator.env of the credentials' folder, docs/security.md",
        )
    if server.ahead_s is not None:
        off_s = max(abs(server.ahead_s) - server.round_trip_s / 2, 0.0)
        direction = "ahead of" if server.ahead_s > 0 else "behind"
        yield clock_finding(off_s, f"the clock of NATS is {abs(server.ahead_s):.3f} s {direction} this machine's")


def is_loopback(url: str) -> bool:
    """Reports whether the server is on this machine, where no traffic leaves it."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
