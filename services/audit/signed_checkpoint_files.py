"""Files of signed checkpoints, which may lie on another machine's disk."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from shared.file_replacement import replace_file
from shared.kube.instants import SECOND
from shared.log.checkpoint import Checkpoint

NEWEST = "checkpoint.json"


def text_of(checkpoint: Checkpoint) -> str:
    """Encodes a checkpoint for files and the ConfigMap: one line of JSON."""
    return msgspec.json.encode(checkpoint).decode() + "\n"


def write_files(folder: Path, checkpoint: Checkpoint, at_ns: int, *, kept: timedelta) -> None:
    """Replaces `checkpoint.json`, adds a line to the day's `checkpoints-2026-07-30.jsonl`, and deletes old days.

    Idempotent: the last line of a day is not written again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = text_of(checkpoint)
    at = datetime.fromtimestamp(at_ns // SECOND, UTC)
    day = folder / f"checkpoints-{at:%Y-%m-%d}.jsonl"
    if not day.exists() or not _ends_with(day, text):
        with day.open("a") as opened:
            opened.write(text)
        oldest = f"checkpoints-{at - kept:%Y-%m-%d}.jsonl"
        for old in folder.glob("checkpoints-*.jsonl"):
            if old.name < oldest:
                old.unlink(missing_ok=True)
    replace_file(folder / NEWEST, text.encode())


def _ends_with(file: Path, text: str) -> bool:
    expected = text.encode()
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - len(expected)))
        return opened.read() == expected
