"""The history of a device, of events by more than one shard."""

from msgspec.structs import replace

from cli.devices.device_history import recorded_changes
from shared.events import Event, RecordedEvent
from shared.events.devices import MISSING, DeviceAppeared, DeviceDisappeared
from tests.support.discovery_log import gpu, sick


def history(*events: tuple[str, Event]) -> list[tuple[str, str]]:
    records = [RecordedEvent(context, seq, event, seq) for seq, (context, event) in enumerate(events, 1)]
    return [(change.event, change.kind) for change in recorded_changes(records)]


def test_a_node_that_changes_shards_is_no_change_of_its_devices() -> None:
    there = DeviceAppeared("n/gpu/0", "n", "b", 1, 1, gpu(0), 1)
    gone = DeviceDisappeared("n/gpu/0", "n", "b", 2, 2, MISSING, gpu(0))
    assert history(("devices-0", there), ("devices-1", there)) == [("devices-0/1", "appeared")]
    failed = replace(there, found=sick(0))
    assert history(("devices-0", there), ("devices-1", failed)) == [
        ("devices-0/1", "appeared"),
        ("devices-1/2", "health"),
    ]
    other = replace(there, found=gpu(0, id="another"))
    assert history(("devices-0", there), ("devices-1", other))[1:] == [("devices-1/2", "appeared")]
    back = history(("devices-0", there), ("devices-0", gone), ("devices-1", there))
    assert [kind for _, kind in back] == ["appeared", "gone", "appeared"]
