"""Decoding of the `args` of a pluginConfig."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from shared.closest_name import with_closest_field
from shared.errors import KoordError
from shared.kube.instants import BadTime, duration_ns
from shared.type_error_words import in_plain_words

T = TypeVar("T")


def decode_args(raw: Mapping[str, Any], into: type[T], source: str, error: type[KoordError]) -> T:
    """Decodes arguments; `apiVersion`, `kind` and fields that are null are left out.

    Args:
        source: the path of the arguments in the configuration, for the error.

    Raises:
        error: a field is unknown or of the wrong type.
    """
    given = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind") and value is not None}
    try:
        return msgspec.convert(given, into)
    except msgspec.ValidationError as invalid:
        raise error(f"{source}: {with_closest_field(in_plain_words(str(invalid)), into)}") from invalid


def check_duration(name: str, text: str, source: str, error: type[KoordError]) -> None:
    """Checks a duration, as `1m30s`.

    Raises:
        error: it is none, or below 0.
    """
    try:
        negative = duration_ns(text) < 0
    except BadTime as invalid:
        raise error(f"{source}: {name}: {invalid}") from invalid
    if negative:
        raise error(f"{source}: {name} is {text}; give 0s or more")
