"""Checkpoints of the predictor's histograms: one file each, so that few are written at a time.

Source: spec/slo-controller.md 11.2, 11.3.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from shared.file_replacement import replace_file
from shared.kube.json_text import decode_with
from shared.prediction.usage_models import ModelCheckpoint

log = logging.getLogger(__name__)

FOLDER = "prediction"
_KEY = re.compile(r"[0-9A-Za-z_][0-9A-Za-z._-]{0,127}").fullmatch
_decoder = msgspec.json.Decoder(ModelCheckpoint)


class HistogramCheckpoints:
    """A folder with one file for each model, named by the model's key."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER
        self._unwritable = False

    def read(self) -> list[ModelCheckpoint]:
        """Reads all checkpoints; a file that is invalid or half written is removed."""
        found = []
        for path in sorted(self._folder.glob("*")):
            try:
                model = decode_with(_decoder, path.read_bytes())
            except (OSError, msgspec.MsgspecError) as error:
                log.warning(
                    "a prediction kept on this node cannot be used", extra={"file": str(path), "why": str(error)}
                )
                path.unlink(missing_ok=True)
                continue
            if model.uid == path.name:
                found.append(model)
            else:
                path.unlink(missing_ok=True)
        return found

    def keep(self, models: Iterable[ModelCheckpoint]) -> None:
        """Writes each checkpoint atomically."""
        for model in models:
            if not _KEY(model.uid):
                continue
            path = self._folder / model.uid
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                replace_file(path, msgspec.json.encode(model))
            except OSError as error:
                if not self._unwritable:
                    log.warning("predictions cannot be kept over a restart", extra={"why": str(error)})
                self._unwritable = True

    def remove(self, keys: Iterable[str]) -> None:
        """Removes checkpoints."""
        for key in keys:
            if _KEY(key):
                (self._folder / key).unlink(missing_ok=True)
