"""The declarations of all event types."""

import pytest

from shared.events import EVENT_TYPES


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_each_type_names_the_field_of_its_object(name: str) -> None:
    """The writer stores that field as the row's key; without it the append fails, and the service ends."""
    kind = EVENT_TYPES[name]
    assert kind.KEY in kind.__struct_fields__
