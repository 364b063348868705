"""Lines beside an answer from the log while the gateway does not read the cluster, or starts no effects: what the log has
is then older than it seems, or goes no further.

From the gateway's own status, where its address is known: of a system that `koord up` runs here, and in KOORD_STATUSZ.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import msgspec

from cli.supervisor.system_folder import find_endpoints
from cli.terminal.output import show_text
from shared.errors import KoordError
from shared.unreachable import Unreachable

GATEWAY = "gateway"
ANSWER_S = 1.0
_API_SERVER = "API server"


class GatewayTrouble(msgspec.Struct, frozen=True):
    """The part of a gateway's status (shared/runtime/status.py) that makes an answer from the log one to be careful with."""

    service: str
    halted: tuple[str, ...] = ()
    unreachable: tuple[Unreachable, ...] = ()


def trouble_lines(found: Iterable[GatewayTrouble | None]) -> Iterator[str]:
    """Yields a line for each trouble of the gateways.

    Args:
        found: the gateways' statuses; None of one that does not respond.
    """
    for one in found:
        if one is None:
            yield "the gateway does not respond: the log may be older than the cluster, and effects may be stopped (`koord top`)"
            continue
        yield from one.halted
        for away in one.unreachable:
            if _API_SERVER in away.server:
                yield f"the log is older than the cluster: the {one.service} {away}"


def warn_of_trouble(folder: Path) -> None:
    """Prints the lines about the system in a folder on stderr; none of a system that is stopped, or away."""
    with suppress(KoordError):
        services = find_endpoints(folder).services
        found = [_trouble(url) for name, url in services.items() if name.partition("-")[0] == GATEWAY]
        for line in trouble_lines(found):
            show_text(f"koord: {line}", err=True)


def _trouble(address: str) -> GatewayTrouble | None:
    url = address if "//" in address else f"http://{address}"
    try:
        with build_opener(ProxyHandler({})).open(f"{url.rstrip('/')}/statusz", timeout=ANSWER_S) as answer:
            return msgspec.json.decode(answer.read(), type=GatewayTrouble)
    except (OSError, HTTPException, ValueError, msgspec.DecodeError):
        return None
