"""Decoding of JSON in annotations, which any client may write: every malformed text raises one kind of error."""

from typing import Any

import msgspec


def read_json(text: str, kind: Any = Any) -> Any:
    """Decodes a text into a type.

    Raises:
        msgspec.MsgspecError: the text is no JSON, not of the type, or nested too deeply.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is nested too deeply") from error
