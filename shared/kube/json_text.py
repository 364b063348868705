"""Decoding of JSON that any client may write, such as annotations: every malformed text raises one kind of error.

msgspec raises RecursionError for a text that is nested too deeply and UnicodeDecodeError for one that is no UTF-8. An
annotation of either kind must not end the service that reads it.
"""

from typing import Any, Protocol, TypeVar

import msgspec

_T_co = TypeVar("_T_co", covariant=True)


class JsonDecoder(Protocol[_T_co]):
    """A decoder of msgspec's."""

    def decode(self, data: bytes | str, /) -> _T_co:
        """Decodes a text."""
        ...


def read_json(text: str | bytes, kind: Any = Any) -> Any:
    """Decodes a text into a type.

    Raises:
        msgspec.MsgspecError: the text is no JSON, not of the type, or nested too deeply.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (RecursionError, UnicodeDecodeError) as error:
        raise _malformed(error) from error


def decode_with(decoder: JsonDecoder[_T_co], data: str | bytes) -> _T_co:
    """Decodes a text with a decoder that was built before.

    Raises:
        msgspec.MsgspecError: as `read_json`.
    """
    try:
        return decoder.decode(data)
    except (RecursionError, UnicodeDecodeError) as error:
        raise _malformed(error) from error


def json_value(found: Any) -> Any:
    """Returns a value as a decoder gives it from its JSON: lists and dicts, where `msgspec.to_builtins` leaves tuples.

    What a service folds of its own append is equal to what it reads from the log only then.
    """
    return msgspec.json.decode(msgspec.json.encode(found))


def _malformed(error: Exception) -> msgspec.DecodeError:
    deep = isinstance(error, RecursionError)
    return msgspec.DecodeError("JSON is nested too deeply" if deep else f"JSON is no UTF-8: {error}")
