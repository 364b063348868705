"""A decoder's error about a value of the wrong type, in words of JSON instead of Python's names."""

import re

_TYPES = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_AT = " - at `$"
_MALFORMED = "JSON is malformed: "
_TRUNCATED = "Input data was truncated"
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
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
    message = message.removeprefix("Object contains ")  # an unknown field
    found = _TYPES.match(message)
    if found is None:
        return message
    types = [_EXPECTED.get(each, each) for each in found[1].split(" | ") if each != "null"]
    return f"expected {' or '.join(types) or 'null'}, got {_FOUND.get(found[2], found[2])}{message[found.end() :]}"


def field_fault(error: Exception) -> str:
    """Returns the field that a decoder refused and what is wrong with it, as a user writes both:
    `spec.owners[0].labelSelector: expected an object, got a string`. The text of another error is returned as it is.
    """
    reason, _, path = str(error).partition(_AT)
    path = path.rstrip("`").lstrip(".")
    if reason.startswith(_MALFORMED):
        words = f"it is no JSON: {reason.removeprefix(_MALFORMED)}"
    elif reason.startswith(_TRUNCATED):
        words = "it is no JSON: its end is missing"
    elif missing := _MISSING.match(reason):
        words = f"the field {missing[1]} is missing"
    else:
        words = in_plain_words(reason)
    return f"{path}: {words}" if path else words


def unreadable_annotation(name: str, fault: str) -> str:
    """Returns the sentence about an annotation that cannot be read.

    Args:
        fault: what is wrong with it, such as `field_fault` returns.
    """
    return f"annotation {name} cannot be read: {fault}; correct or remove it"
