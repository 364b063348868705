"""Errors about values of the wrong type, in words of JSON."""

import msgspec
import pytest

from shared.type_error_words import in_plain_words


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("yes", bool | None, "expected true or false, got a string"),
        ("3", int, "expected a whole number, got a string"),
        ([], dict[str, str], "expected an object, got a list"),
        (None, str, "expected a string, got null"),
        (True, float | None, "expected a number, got true or false without quotes"),
        (2.5, int, "expected a whole number, got a number"),
    ],
)
def test_the_types_are_those_of_json(value: object, kind: object, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(value, kind)
    assert in_plain_words(str(raised.value)) == words


def test_a_message_about_something_else_is_unchanged() -> None:
    assert in_plain_words("Expected `int` >= 1") == "Expected `int` >= 1"
