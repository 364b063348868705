"""Numbers in objects of custom resources: `cpu: 4` is the quantity `"4"`."""

import msgspec
import pytest

from shared.domain.reservation import read_reservation
from shared.kube.amounts_as_text import amounts_as_text, read_object
from shared.kube.node_resource_topology import NodeResourceTopology, Zone


def test_amounts_are_texts_and_other_numbers_stay() -> None:
    container = {"resources": {"requests": {"cpu": 2, "memory": "1Gi", "example.com/card": 0.5}}, "ports": [80]}
    body = {"spec": {"replicas": 3, "containers": [container], "enabled": True}}
    texts = {"requests": {"cpu": "2", "memory": "1Gi", "example.com/card": "0.5"}}
    assert amounts_as_text(body) == {
        "spec": {"replicas": 3, "containers": [{"resources": texts, "ports": [80]}], "enabled": True}
    }


def test_a_reservation_is_read_with_numbers_as_amounts() -> None:
    def body(cpu: str | int) -> dict[str, object]:
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
        status = {"phase": "Available", "nodeName": "n", "allocatable": {"cpu": cpu}, "allocated": {"cpu": cpu}}
        return {"metadata": {"name": "r"}, "spec": {"template": template, "owners": []}, "status": status}

    assert read_reservation(body(2)) == read_reservation(body("2"))


def test_the_zones_of_a_topology_are_read_with_numbers_as_amounts() -> None:
    zones = [
        {"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "capacity": 16, "allocatable": 16}]},
    ]
    [zone] = read_object(zones, tuple[Zone, ...])
    whole = read_object({"metadata": {"name": "n"}, "zones": zones}, NodeResourceTopology)
    assert whole.zones == (zone,)
    assert zone.resources[0].allocatable == "16"


def test_a_field_of_another_type_is_still_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"metadata\.name"):
        read_object({"metadata": {"name": 7}}, NodeResourceTopology)
