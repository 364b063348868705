"""Structured JSON logs on stderr: one line a surprise, with keys and units."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A log record as one JSON object; what was passed in `extra` becomes members of its own."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def set_up(service: str, level: str) -> None:
    """Log to stderr as JSON; what libraries log below a warning is not for whoever is on call."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in ("shared", "services", "cli"):
        logging.getLogger(name).setLevel(level.upper())
