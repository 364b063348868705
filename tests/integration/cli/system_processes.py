"""Processes of a system that `koord up` runs, found by its folder."""

import json
import os
from pathlib import Path

import psutil


def processes_of(folder: Path) -> list[psutil.Process]:
    """Returns the processes with this folder in their command line or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


def service(folder: Path, name: str) -> psutil.Process:
    for process in psutil.process_iter():
        try:
            environ = process.environ()
        except psutil.Error:
            continue
        server = json.loads((folder / "endpoints.json").read_text())["postgres"].rpartition("@")[2]
        if environ.get("KOORD_POSTGRES", "").endswith(f"@{server}") and environ.get("KOORD_REPLICA") == name:
            return process
    raise AssertionError(f"no process of {name}")


def postmaster_of(folder: Path) -> psutil.Process:
    """Returns the server's first process; a process that it has just forked looks like it for a moment."""
    found = {one.pid: one for one in processes_of(folder) if one.name() == "postgres" and "-D" in one.cmdline()}
    (first,) = [one for one in found.values() if one.ppid() not in found]
    return first
