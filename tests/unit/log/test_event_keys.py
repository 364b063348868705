"""Every event type names the field with the object that it is about: without it an append raises."""

import pytest

from shared.events import EVENT_TYPES


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_an_event_type_has_a_key_that_is_one_of_its_fields(name: str) -> None:
    kind = EVENT_TYPES[name]
    assert kind.KEY in kind.__struct_fields__
