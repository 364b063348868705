"""`koord why device`: the state of a device, what changed about it and when, and which pods had it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import msgspec

from cli.devices.device_history import (
    Change,
    DeviceName,
    Use,
    changed_fields,
    devices_there,
    discovered_changes,
    health_reason,
    observed_changes,
    uses_of,
)
from cli.scheduling.answer_from_log import answer
from cli.scheduling.recorded_state import scheduler_state
from cli.terminal import name_completion
from cli.terminal.amounts import human_amounts
from cli.terminal.durations import instant_of
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format
from cli.terminal.time_arguments import Instant
from services.scheduler.state.scheduler_state import SchedulerState
from shared.agents.device_inventory import DeviceFound
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.events.devices import MISSING, NODE, REPLACED, DeviceUser
from shared.first_names import first_names
from shared.kube.resource_names import DEVICES
from shared.log.admin.key_completion import device_keys
from shared.log.reader import LogReader

PERIOD = timedelta(days=7)
MOST_DEVICES = 1_000
"""Keys of recorded devices that are read to name those there are."""
_GONE = {
    MISSING: "the inventory of its node no longer has it",
    REPLACED: "another device has its minor",
    NODE: "its node left the cluster",
}
_KINDS = ("device/", "devices/")


class UnknownDevice(KoordError):
    """The log has no such device; the text names those there are."""


class DeviceStep(msgspec.Struct, frozen=True):
    """A change.

    Attributes:
        event: `context/seq`.
        at: when the node's agent read its devices; of the append where another agent writes the Device objects.
        recorded_at: of the append.
        pods: those that had the device then, as far as the event names them.
    """

    event: str
    at: str
    recorded_at: str
    text: str
    pods: tuple[str, ...]


class DeviceUse(msgspec.Struct, frozen=True):
    """A pod that has or had the device, or a part of it.

    Attributes:
        since: of its binding; empty where the log no longer has it.
        until: of its end; empty where it still has the device.
        amounts: resource -> amount, bytes of memory.
    """

    pod: str
    pod_uid: str
    since: str
    until: str
    amounts: dict[str, int]


class DeviceExplanation(msgspec.Struct, frozen=True):
    """The content of `koord why device -o json`.

    Attributes:
        state: `healthy`, `unhealthy` or `gone`.
        since: of this state.
        found: the device, or as it was where it is gone.
        affected: pods that had it when it last became unhealthy or disappeared.
        pods: those that have it, and those that were bound with it within the period, oldest first.
        read_since: the instant from which on bindings are read.
        steps: its changes, oldest first.
    """

    device: str
    node: str
    id: str
    state: str
    since: str
    summary: str
    found: DeviceFound
    affected: tuple[str, ...]
    pods: tuple[DeviceUse, ...]
    read_since: str
    steps: tuple[DeviceStep, ...]


@click.command
@click.argument("name", metavar="NODE/TYPE/MINOR", shell_complete=name_completion.devices)
@click.option("--since", type=Instant(), default=None, help="Name pods that were bound from then on.  [default: 7d]")
@output_option
@folder_option
def device(*, name: str, since: datetime | None, output: Format, folder: Path) -> None:
    """Explain the state of a device: what changed and when, and which pods had it.

    Such as worker-1/gpu/0. Pods that have the device are always named.
    """
    begin = since or datetime.now(UTC) - PERIOD
    answer(folder, output, lambda log: explain_device(log, name, begin), _lines)


async def explain_device(log: LogReader, text: str, since: datetime) -> DeviceExplanation:
    """Explains a device.

    Args:
        text: `NODE/TYPE/MINOR`.
        since: bindings before are not read, except those of pods that have the device.

    Raises:
        UnknownDevice: the log has none of this name.
    """
    view = await scheduler_state(log)
    name = device_name(text)
    changes = await discovered_changes(log, name) if name else []
    if name is not None and not changes:
        changes = await observed_changes(log, name)
    if name is None or not changes:
        raise await _unknown(log, view, text)
    return explained(name, changes, await uses_of(log, view, name, since), since)


def device_name(text: str) -> DeviceName | None:
    """Reads `NODE/TYPE/MINOR`; None for another form."""
    parts = text.split("/")
    if len(parts) == 4 and text.startswith(_KINDS):
        parts = parts[1:]
    if len(parts) != 3 or not all(parts) or not parts[2].lstrip("-").isdecimal():
        return None
    return DeviceName(parts[0], parts[1], int(parts[2]))


def explained(name: DeviceName, changes: Sequence[Change], uses: Sequence[Use], since: datetime) -> DeviceExplanation:
    """Explains a device from its changes, of which there is one at least, and the pods that had it."""
    last = changes[-1]
    state = _state(last)
    begin = _begin(changes, state)
    affected = next((each.pods for each in reversed(changes) if _takes_away(each)), ())
    return DeviceExplanation(
        device=str(name),
        node=name.node,
        id=last.found.id,
        state=state,
        since=instant_of(begin.at_ns),
        summary=_summary(state, begin),
        found=last.found,
        affected=_names(affected) if state != "healthy" else (),
        pods=tuple(
            DeviceUse(each.pod, each.pod_uid, _instant(each.since_ns), _instant(each.until_ns), each.amounts)
            for each in uses
        ),
        read_since=instant_of(int(since.timestamp() * 1e9)),
        steps=tuple(
            DeviceStep(each.event, instant_of(each.at_ns), instant_of(each.recorded_ns), _text(each), _names(each.pods))
            for each in changes
        ),
    )


def _state(after: Change) -> str:
    return "gone" if after.kind == "gone" else "healthy" if after.found.health else "unhealthy"


def _begin(changes: Sequence[Change], state: str) -> Change:
    """Returns the change with which the present state began."""
    begin = changes[-1]
    for each in reversed(changes):
        if _state(each) != state:
            break
        begin = each
    return begin


def _takes_away(change: Change) -> bool:
    return change.kind == "gone" or (change.kind == "health" and _state(change) == "unhealthy")


def _summary(state: str, begin: Change) -> str:
    at = instant_of(begin.at_ns)
    if state == "gone":
        return f"it disappeared at {at}: {_GONE[begin.reason]}"
    reason, message = (begin.reason, begin.message) if begin.kind == "health" else health_reason(begin.found)
    why = f": {': '.join(each for each in (reason, message) if each)}" if state == "unhealthy" and reason else ""
    return f"it is {state} since {at}{why}"


def _text(change: Change) -> str:
    found = change.found
    match change.kind:
        case "gone":
            return f"it disappeared: {_GONE[change.reason]}{_used_by(change.pods)}"
        case "appeared":
            again = "it is there again" if change.before is not None else "it appeared"
            other = f", as {found.id}" if change.before is not None and change.before.id != found.id else ""
            return f"{again}{other}{'' if found.health else ', unhealthy'}"
        case "health":
            why = ": ".join(each for each in (change.reason, change.message) if each)
            became = "healthy again" if found.health else "unhealthy"
            return f"it became {became}{why and f': {why}'}{_used_by(change.pods)}"
        case "changed":
            fields = changed_fields(change.before, found)
            shown = (f"{each} {_field(change.before, each)} -> {_field(found, each)}" for each in fields)
            return f"it changed: {'; '.join(shown) or 'its conditions'}"


def _field(found: DeviceFound | None, name: str) -> str:
    value = getattr(found, name)
    if name == "resources":
        return f"({_amounts(value)})"
    if isinstance(value, Mapping):
        return f"({', '.join(f'{key}={each}' for key, each in sorted(value.items())) or 'none'})"
    return f"{len(value)}" if isinstance(value, tuple) else f"{value!s}" or "none"


def _amounts(sizes: Mapping[str, int]) -> str:
    return human_amounts(sizes, none="no amounts").replace("koordinator.sh/", "")


def _used_by(pods: Sequence[DeviceUser]) -> str:
    return f"; {', '.join(_names(pods))} had it" if pods else ""


def _names(pods: Sequence[DeviceUser]) -> tuple[str, ...]:
    return tuple(each.pod for each in pods)


def _instant(at_ns: int) -> str:
    return instant_of(at_ns) if at_ns else ""


def _lines(found: DeviceExplanation) -> Iterator[str]:
    identity = f" ({found.id})" if found.id else ""
    yield f"{found.device}{identity}: {found.summary}"
    yield f"  {'; '.join(_facts(found.found))}"
    if found.affected:
        yield f"  pods that had it then: {', '.join(found.affected)}"
    elif found.state != "healthy":
        yield "  no pod had it then, as far as is recorded"
    if not found.pods:
        yield f"  no pod has it, and none was bound with it since {found.read_since}"
    for each in found.pods:
        since = f"since {each.since}" if each.since else "since before the oldest recorded binding"
        until = f" until {each.until}" if each.until else ""
        yield f"  {each.pod} {'had' if each.until else 'has'} it {since}{until}: {_amounts(each.amounts)}"
    yield ""
    for step in found.steps:
        yield f"{step.at}  {step.event:<18} {step.text}"


def _facts(found: DeviceFound) -> Iterator[str]:
    yield _amounts(found.resources)
    if found.numa >= 0:
        yield f"NUMA node {found.numa}"
    for title, value in (("PCIe root", found.pcie_root), ("PCIe switch", found.pcie_switch), ("PCI", found.bus_id)):
        if value:
            yield f"{title} {value}"


async def _unknown(log: LogReader, view: SchedulerState, text: str) -> UnknownDevice:
    """Returns the error about a device that the log does not have, with those that it has."""
    name = device_name(text)
    node = name.node if name is not None else text.partition("/")[0]
    there = devices_there(view, node, await _recorded_keys(log, f"{node}/"))
    if there and name is None:
        return UnknownDevice(f"{text!r} is no device; give NODE/TYPE/MINOR. {node} has {_listed(there)}")
    if there and name is not None:
        return UnknownDevice(f"node {node} has no {name.type}/{name.minor}; it has {_listed(there)}")
    recorded_nodes = {key.partition("/")[0] for key in await _recorded_keys(log, "") if "/" in key}
    nodes = sorted(recorded_nodes | view.objects.get(DEVICES, {}).keys())
    if node in view.nodes:
        reason = f"node {node} has no devices"
    else:
        reason = f"there is no node {node!r}{did_you_mean(node, nodes)}"
    known = f"nodes with devices: {first_names(nodes, 10)}" if nodes else "no node has devices"
    return UnknownDevice(f"{reason}; {known}. Give NODE/TYPE/MINOR, such as worker-1/gpu/0")


async def _recorded_keys(log: LogReader, prefix: str) -> list[str]:
    return await device_keys(log, prefix, MOST_DEVICES)


def _listed(there: Mapping[str, Sequence[int]]) -> str:
    return "; ".join(f"{type_} {first_names([str(each) for each in minors], 16)}" for type_, minors in there.items())
