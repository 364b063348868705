"""A decoder's error about a value of the wrong type, in words of JSON instead of Python's names."""

import re

_TYPES = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "array": "a list",
    "object": "an object",
}
_FOUND = {**_EXPECTED, "bool": "true or false without quotes", "null": "null"}


def in_plain_words(message: str) -> str:
    """Returns the message of a `msgspec.ValidationError` with the types as a user writes them: `expected true or false,
    got a string`. A message about something else is unchanged.
    """
    found = _TYPES.match(message)
    if found is None:
        return message
    types = [_EXPECTED.get(each, each) for each in found[1].split(" | ") if each != "null"]
    return f"expected {' or '.join(types) or 'null'}, got {_FOUND.get(found[2], found[2])}{message[found.end() :]}"
