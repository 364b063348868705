"""The device daemon as a process: lists accelerators at intervals until a signal ends it.

Source: spec/node-agent.md 6.3.
"""

import logging
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from services.node_agent.device_daemon import cambricon_mlus, huawei_npus, kunlun_xpus, metax_gpus
from services.node_agent.device_daemon.daemon_options import DaemonOptions, DeviceDaemonSettings, load_options
from services.node_agent.device_daemon.device_info_file import ListedDevice, encode
from services.node_agent.device_daemon.vendor_tool import ToolFailed, VendorFailed, VendorTool
from services.node_agent.devices.pci_bus import PciBus
from shared.errors import KoordError
from shared.file_replacement import replace_file
from shared.runtime import json_logging
from shared.settings import unknown_variables

log = logging.getLogger(__name__)

NAME = "device-daemon"
SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT})
UPSTREAM_FOLDER = "ic-device-tmp"
"""Folder beside the output file that upstream's daemon removes with it."""


class _SignalPendingError(Exception):
    """A signal has arrived; the list that is being made is not needed."""


class Vendors:
    """The vendors' tools of this node."""

    def __init__(self, tool: VendorTool, bus: PciBus, dev: Path) -> None:
        self._tool, self._bus, self._dev = tool, bus, dev

    def list_devices(self) -> list[ListedDevice]:
        """Returns the devices of all vendors.

        Raises:
            ToolFailed, VendorFailed: the devices of a vendor that is present cannot be listed.
        """
        found: list[ListedDevice] = []
        if huawei_npus.is_present(self._bus):
            found += huawei_npus.list_npus(self._tool, self._bus, self._dev)
        for vendor, listed in (
            (cambricon_mlus.is_present, cambricon_mlus.list_mlus),
            (kunlun_xpus.is_present, kunlun_xpus.list_xpus),
            (metax_gpus.is_present, metax_gpus.list_gpus),
        ):
            if vendor(self._bus):
                found += listed(self._tool, self._bus)
        return found


def run(flags: Mapping[str, str], environment: Mapping[str, str]) -> int:
    """Runs until INT, TERM or QUIT, or once with `oneshot`; returns the process's exit status.

    HUP loads the options again and lists at once. At its end the output file is removed, except with `oneshot`.

    Args:
        flags: as `load_options` takes them.

    Raises:
        KoordError: an option or setting is invalid at the start.
    """
    settings = DeviceDaemonSettings.load(NAME, environment)
    json_logging.set_up(NAME, settings.log_level)
    for text in unknown_variables(NAME, (DeviceDaemonSettings,), environment):
        log.warning(text)
    # Signals wait until they are fetched: between two tools, and while the daemon sleeps.
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return _run(flags, environment, _vendors(settings))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _run(flags: Mapping[str, str], environment: Mapping[str, str], vendors: Vendors) -> int:
    options = load_options(flags, environment)
    log.info("running", extra={"options": options._asdict()})
    try:
        while True:
            number = _list_and_wait(options, vendors)
            if number != signal.SIGHUP:
                return 0
            reloaded = _reload(flags, environment, options)
            if reloaded.output != options.output:
                _remove(options.output)
            options = reloaded
    except (ToolFailed, VendorFailed, OSError) as error:
        log.error("devices are not listed", extra={"why": str(error)})  # noqa: TRY400  the text says what to do
        return 1
    finally:
        if not options.oneshot:
            _remove(options.output)


def _reload(flags: Mapping[str, str], environment: Mapping[str, str], before: DaemonOptions) -> DaemonOptions:
    """Loads the options again; invalid ones leave those in force."""
    try:
        options = load_options(flags, environment)
    except KoordError as error:
        log.error("the options stay as they are", extra={"why": str(error)})  # noqa: TRY400  the text says it
        return before
    log.info("options are loaded again", extra={"options": options._asdict()})
    return options


def _list_and_wait(options: DaemonOptions, vendors: Vendors) -> int | None:
    """Lists the devices at intervals; returns the signal that ended it, None with `oneshot`."""
    while True:
        try:
            devices = vendors.list_devices()
        except _SignalPendingError:
            return signal.sigwait(SIGNALS)
        if not devices:
            log.warning("no device of a known vendor is found")
        if options.output:
            Path(options.output).parent.mkdir(parents=True, exist_ok=True)
            replace_file(Path(options.output), encode(devices))
        log.info("devices are listed", extra={"devices": len(devices), "file": options.output})
        if options.oneshot:
            return None
        received = signal.sigtimedwait(SIGNALS, options.sleep_interval_s)
        if received is not None:
            return received.si_signo


def _vendors(settings: DeviceDaemonSettings) -> Vendors:
    sys = settings.sys_root or _first("/host-sys", "/sys")
    host = settings.host_root or _first("/hostfs", "")
    tool = VendorTool(Path(host) if host else None, settings.tool_within_s, _check_signals)
    return Vendors(tool, PciBus(Path(sys)), Path(settings.dev_root))


def _first(folder: str, otherwise: str) -> str:
    return folder if os.path.isdir(folder) else otherwise  # noqa: PTH112  a constant


def _check_signals() -> None:
    if signal.sigpending() & SIGNALS:
        raise _SignalPendingError


def _remove(output: str) -> None:
    """Removes the output file, and upstream's folder beside it."""
    if not output:
        return
    shutil.rmtree(Path(output).with_name(UPSTREAM_FOLDER), ignore_errors=True)
    Path(output).unlink(missing_ok=True)
