"""Errors about values of the wrong type, in words of JSON."""

import msgspec
import pytest

from shared.type_error_words import field_fault, in_plain_words


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


class _Template(msgspec.Struct):
    spec: dict[str, list[int]] = {}
    name: str = msgspec.field(name="nodeName", default="")


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""


class _Needs(msgspec.Struct):
    name: str


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ('{"spec": {"a": [1, "2"]}}', _Template, "spec[...][1]: expected a whole number, got a string"),
        ('{"nodeName": 3}', _Template, "nodeName: expected a string, got a whole number"),
        ("[]", _Template, "expected an object, got a list"),
        ('{"nam": "x"}', _Strict, "unknown field `nam`"),
        ("{}", _Needs, "the field name is missing"),
        ("{'a': 1}", _Template, "it is no JSON: object keys must be strings (byte 1)"),
        ('{"spec"', _Template, "it is no JSON: its end is missing"),
    ],
)
def test_a_fault_names_the_field_as_a_user_writes_it(text: str, kind: type, words: str) -> None:
    with pytest.raises(msgspec.MsgspecError) as raised:
        msgspec.json.decode(text, type=kind)
    assert field_fault(raised.value) == words
