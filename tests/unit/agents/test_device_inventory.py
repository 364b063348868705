"""Encoding of inventories."""

from typing import Any

import msgspec
import pytest

from shared.agents import device_inventory
from shared.agents.device_inventory import BadInventory, DeviceFound, Devices

DEVICES = Devices((DeviceFound("gpu", 0, True, "GPU-0", {"koordinator.sh/gpu-memory": 80 << 30, "a": 1}),))


def message(content: Any, **changed: Any) -> bytes:
    fields = {"node": "n", "boot": "b", "seq": 1, "at_ns": 5} | changed
    return msgspec.msgpack.encode([1, *fields.values(), content])


def test_an_inventory_survives_encoding_and_equal_devices_have_equal_bytes() -> None:
    data = device_inventory.encode(node="n", boot="b", seq=1, at_ns=5, devices=DEVICES)
    found = device_inventory.decode(data, "n")
    assert (found.boot, found.seq, found.at_ns, device_inventory.devices_of(found)) == ("b", 1, 5, DEVICES)
    turned = DeviceFound("gpu", 0, True, "GPU-0", {"a": 1, "koordinator.sh/gpu-memory": 80 << 30})
    later = device_inventory.encode(node="n", boot="b", seq=2, at_ns=9, devices=Devices((turned,)))
    assert bytes(device_inventory.decode(later, "n").content) == bytes(found.content)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (message({}, node="m"), "inventory of node n: node: names 'm'"),
        (message({}, seq=0), "inventory of node n: seq: "),
        (message({"devices": [{"type": "GPU", "minor": 0, "health": True}]}), "inventory of node n: devices[0].type: "),
        (message({"devices": [{"type": "gpu", "minor": 2**31, "health": True}]}), "inventory of node n: devices[0].minor: "),
        (message({"devices": [{"type": "gpu", "minor": 0}]}), "inventory of node n: devices[0]: "),
        (message({"devices": [{"type": "gpu", "minor": 0, "health": True}] * 1_025}), "inventory of node n: devices: "),
        (message({"unread": {"gpu": "x" * 513}}), "inventory of node n: unread"),
        (message({"partitions": {"0": []}}), "inventory of node n: partitions"),
        (b"\xc1", "inventory of node n: is no MessagePack"),
        (b"x" * (1 << 20) + b"x", "inventory of node n: has 1048577 bytes"),
    ],
)  # fmt: skip
def test_an_invalid_inventory_is_rejected_with_node_field_and_reason(data: bytes, text: str) -> None:
    with pytest.raises(BadInventory) as error:
        device_inventory.devices_of(device_inventory.decode(data, "n"))
    assert str(error.value).startswith(text)
