"""The hook servers that are registered: the files of one folder, read again when they change.

Source: spec/node-agent.md 5.4. Each use looks at the folder, so that a registration is in force for the next call.
"""

import logging
import os
from pathlib import Path
from typing import NamedTuple

from shared.runtime_hooks.registration import (
    MAX_BYTES,
    BadRegistration,
    Registration,
    read_registration,
    unknown_stages,
)

log = logging.getLogger(__name__)

SUFFIX = "json"
MAX_FILES = 64


class _Version(NamedTuple):
    inode: int
    changed_ns: int
    size: int


_UNREAD = _Version(0, 0, 0)
"""Version of a file that could not be read: no file has it, so the next use tries again."""


class RegisteredServers:
    """The registrations of one folder. A file that becomes invalid leaves its last good registration in force."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions: dict[str, _Version] = {}
        self._registrations: dict[str, Registration] = {}
        self._logged = ""

    def in_force(self) -> list[Registration]:
        """Returns the registrations in the order of their files' names."""
        try:
            found = self._listed()
        except OSError as error:
            self._log_once(f"{self._folder} cannot be read: {error.strerror}; the registrations stay as they are")
            found = self._versions
        for name in self._versions.keys() - found.keys():
            self._registrations.pop(name, None)
            log.info("a hook server is no longer registered", extra={"file": str(self._folder / name)})
        for name, version in found.items():
            if self._versions.get(name) != version and not self._load(name):
                found[name] = _UNREAD
        self._versions = found
        return [self._registrations[name] for name in sorted(self._registrations)]

    def for_stage(self, stage: str) -> list[Registration]:
        """Returns the registrations that list a stage."""
        return [each for each in self.in_force() if stage in each.runtime_hooks]

    def _listed(self) -> dict[str, _Version]:
        found = {}
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX):
                    continue
                try:
                    if entry.is_dir():
                        continue
                    stat = entry.stat()
                except OSError:  # it is gone, or a link to nothing
                    continue
                found[entry.name] = _Version(stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if len(found) > MAX_FILES:
            self._log_once(f"{self._folder} has {len(found)} registrations; the first {MAX_FILES} by name count")
            return {name: found[name] for name in sorted(found)[:MAX_FILES]}
        self._logged = ""
        return found

    def _load(self, name: str) -> bool:
        """Loads a file; reports whether it could be read, valid or not."""
        path = self._folder / name
        try:
            with path.open("rb") as file:
                registration = read_registration(str(path), file.read(MAX_BYTES + 1))
        except OSError as error:
            if self._versions.get(name) != _UNREAD:
                extra = {"file": str(path), "why": str(error), "then": "it is read again at the next call"}
                log.error("a registration cannot be read", extra=extra)  # noqa: TRY400  the error says it
            return False
        except BadRegistration as error:
            kept = "the one before stays in force" if name in self._registrations else "no hook of it is called"
            log.error("a registration is invalid", extra={"why": str(error), "then": kept})  # noqa: TRY400  the text says it
            return True
        for stage in unknown_stages(registration):
            log.warning("a stage is not known, and never called", extra={"file": str(path), "stage": stage})
        self._registrations[name] = registration
        log.info(
            "a hook server is registered",
            extra={
                "file": str(path),
                "endpoint": registration.remote_endpoint,
                "policy": registration.failure_policy or "Ignore",
                "stages": ",".join(registration.runtime_hooks),
            },
        )
        return True

    def _log_once(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
            log.warning(text)
