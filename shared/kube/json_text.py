"""JSON that anybody may write into an annotation: what cannot be read is one kind of error, however it is wrong."""

from typing import Any

import msgspec


def read_json(text: str, kind: Any = Any) -> Any:
    """Decode a text into a type.

    Raises:
        msgspec.MsgspecError: it is no JSON, not of the type, or nested deeper than any document has reason to be.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is nested too deeply") from error
