"""Lines beside an answer from the log while the gateway does not read the cluster, or starts no effects, and while no
scheduler responds, or it reaches no NATS: what the log has is then older than it seems, or goes no further.

From the services' own status, where its address is known: of a system that `koord up` runs here, and in KOORD_STATUSZ.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import click
import msgspec

from cli.supervisor.system_folder import find_endpoints
from cli.terminal.output import show_text
from shared.errors import KoordError
from shared.unreachable import Unreachable

GATEWAY = "gateway"
SCHEDULER = "scheduler"
ANSWER_S = 1.0
_SHOWN = "koord.trouble-shown"
_API_SERVER = "API server"


class PageStatus(msgspec.Struct, frozen=True):
    """The part of a service's status (shared/runtime/status.py) that makes an answer from the log one to be careful with."""

    service: str
    state: str = ""
    halted: tuple[str, ...] = ()
    unreachable: tuple[Unreachable, ...] = ()


NOT_SERVED = PageStatus("")
"""In place of the status of a process that does not exist, or has not begun to serve its page."""
_UNTIL = "no pod is placed until it does, whatever a pod waits for by the log"


def trouble_lines(found: Iterable[PageStatus | None]) -> Iterator[str]:
    """Yields a line for each trouble of the gateways.

    Args:
        found: the gateways' statuses; NOT_SERVED or None of one that does not respond.
    """
    for one in found:
        if one is None or one == NOT_SERVED:
            yield "the gateway does not respond: the log may be older than the cluster, and effects may be stopped (`koord top`)"
            continue
        yield from one.halted
        for away in one.unreachable:
            if _API_SERVER in away.server:
                yield f"the log is older than the cluster: the {one.service} {away}"


def scheduler_lines(found: Collection[PageStatus | None]) -> Iterator[str]:
    """Yields a line if no scheduler runs or responds, or if it does not reach NATS. A scheduler that hangs decides
    nothing, so what the log has about a waiting pod may be out of date.

    Args:
        found: the status of each scheduler whose address is known; NOT_SERVED where none serves its page; None of one
            that does not respond.
    """
    responding = [one for one in found if one is not None and one != NOT_SERVED]
    if found and not responding and None in found:
        yield f"the scheduler does not respond: {_UNTIL}; `koord doctor` has the remedy"
    elif found and not responding:
        yield (
            f"the scheduler does not run yet: {_UNTIL}; the first start of an installation compiles for a minute or more, and `koord "
            "doctor` names one that ended"
        )
    for one in responding:
        for away in one.unreachable:
            if away.server.startswith("NATS"):
                yield f"no pod of a quota is placed, since no charge can be requested: the {one.service} {away}"


def warn_of_trouble(folder: Path) -> None:
    """Prints the lines about the system in a folder on stderr, once a command; none of a system that is stopped, or away."""
    command = click.get_current_context(silent=True)
    shown = command.find_root().meta if command else {}
    if shown.setdefault(_SHOWN, False):
        return
    shown[_SHOWN] = True
    with suppress(KoordError):
        services = find_endpoints(folder).services
        found = [page_of(url) for url in pages_of(GATEWAY, services)]
        schedulers = [page_of(url) for url in pages_of(SCHEDULER, services)]
        for line in (*trouble_lines(found), *scheduler_lines(schedulers)):
            show_text(f"koord: {line}", err=True)


def pages_of(service: str, addresses: Mapping[str, str]) -> list[str]:
    """Returns the addresses of a service's replicas."""
    return [address for name, address in addresses.items() if name.partition("-")[0] == service]


def page_of(address: str) -> PageStatus | None:
    """Reads the status of a process; NOT_SERVED where none serves the page, None where one has the address and is silent."""
    with suppress(TimeoutError):
        return status_at(address) or NOT_SERVED
    return None


def status_at(address: str) -> PageStatus | None:
    """Reads the status of a process; None where none serves the page.

    Args:
        address: `host:port` or URL of its pages.

    Raises:
        TimeoutError: a process has the address, and sends nothing within ANSWER_S.
    """
    url = address if "//" in address else f"http://{address}"
    try:
        with build_opener(ProxyHandler({})).open(f"{url.rstrip('/')}/statusz", timeout=ANSWER_S) as answer:
            return msgspec.json.decode(answer.read(), type=PageStatus)
    except TimeoutError:
        raise
    except (OSError, HTTPException, ValueError, msgspec.DecodeError):
        return None
