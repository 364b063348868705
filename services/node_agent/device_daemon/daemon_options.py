"""Options of the device daemon: flags, then the environment, then a file. Source: spec/node-agent.md 6.3."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from shared.errors import KoordError
from shared.kube.instants import SECOND, BadTime, duration_ns
from shared.settings import Settings

VERSION = "v1"
MAX_FILE_BYTES = 1 << 20
DEFAULT_OUTPUT = "/var/run/koordlet/xpu-device-infos/ic-device"

ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "oneshot": ("KDD_ONESHOT",),
    "no-timestamp": ("KDD_NO_TIMESTAMP",),
    "sleep-interval": ("KDD_SLEEP_INTERVAL",),
    "prints-output-file": ("KDD_PRINTS_OUTPUT_FILE", "PRINTS_OUTPUT_FILE"),
    "config-file": ("KDD_CONFIG_FILE", "CONFIG_FILE"),
}
"""Flag -> variables, the first of them that is set counts."""

_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
MAX_SLEEP_S = 366 * 86_400.0


class DeviceDaemonSettings(Settings, frozen=True, kw_only=True):
    """KOORD_DEVICE_DAEMON_<FIELD> in the environment: where the host's files are, beyond upstream's options."""

    sys_root: Annotated[
        str, Meta(description="where sysfs is mounted; empty: /host-sys where it exists, else /sys")
    ] = ""
    host_root: Annotated[
        str, Meta(description="root of the host, for its tools; empty: /hostfs where it exists, else this system")
    ] = ""
    dev_root: Annotated[str, Meta(description="where the host's device files are")] = "/dev"
    tool_within_s: Annotated[float, Meta(gt=0, le=600, description="seconds until a vendor's tool is killed")] = 30.0
    log_level: Annotated[str, Meta(description="debug, info, warning or error; JSON lines on stderr")] = "info"


class DaemonOptions(NamedTuple):
    """Options in force.

    Attributes:
        oneshot: list once, and leave the file.
        sleep_interval_s: seconds between two lists.
        output: the file; empty: none is written.
    """

    oneshot: bool = False
    sleep_interval_s: float = 900.0
    output: str = DEFAULT_OUTPUT


class BadDaemonOption(KoordError):
    """An option that is invalid; the text names the flag, the variable, or the file and its field."""


class _FileFlags(msgspec.Struct, rename="camel"):
    oneshot: bool | None = None
    sleep_interval: str | None = None
    prints_output_file: str | None = None


class _FileSection(msgspec.Struct):
    kdd: _FileFlags | None = None


class _File(msgspec.Struct):
    version: str = VERSION
    flags: _FileSection | None = None


def load_options(flags: Mapping[str, str], environment: Mapping[str, str]) -> DaemonOptions:
    """Returns the options in force: of flags, environment and file the first that sets it.

    Args:
        flags: those that were given, without dashes: `{"sleep-interval": "60s"}`.

    Raises:
        BadDaemonOption: one is invalid, or the file cannot be read.
    """
    given = {name: (f"--{name}", text) for name, text in flags.items()}
    for name, variables in ENVIRONMENT.items():
        variable = next((each for each in variables if each in environment), None)
        # As upstream, an empty variable sets the texts alone: without an output file nothing is written.
        if name not in given and variable is not None and (environment[variable] or name == "prints-output-file"):
            given[name] = (variable, environment[variable])
    file = _FileFlags()
    if (path := given.get("config-file", ("", ""))[1]) != "":
        file = _read(Path(path))
        if file.sleep_interval is not None:
            given.setdefault("sleep-interval", (f"{path}: flags.kdd.sleepInterval", file.sleep_interval))
        if file.prints_output_file is not None:
            given.setdefault("prints-output-file", (path, file.prints_output_file))
    options = DaemonOptions(oneshot=bool(file.oneshot))
    if "no-timestamp" in given:
        _boolean(*given["no-timestamp"])  # upstream accepts it, and uses it nowhere
    if "oneshot" in given:
        options = options._replace(oneshot=_boolean(*given["oneshot"]))
    if "sleep-interval" in given:
        options = options._replace(sleep_interval_s=_duration(*given["sleep-interval"]))
    if "prints-output-file" in given:
        options = options._replace(output=given["prints-output-file"][1])
    return options


def _read(path: Path) -> _FileFlags:
    """Reads the file, YAML or JSON.

    Raises:
        BadDaemonOption: naming the file and the field.
    """
    import yaml

    try:
        with path.open("rb") as opened:
            found: Any = yaml.safe_load(opened.read(MAX_FILE_BYTES))
        file = msgspec.convert(found if found is not None else {}, _File)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise BadDaemonOption(f"{path} cannot be read: {error}") from error
    except msgspec.ValidationError as error:
        raise BadDaemonOption(f"{path}: {error}") from error
    if file.version not in {"", VERSION}:
        raise BadDaemonOption(f"{path}: version is {file.version!r}; it must be {VERSION!r}")
    return file.flags.kdd if file.flags is not None and file.flags.kdd is not None else _FileFlags()


def _boolean(source: str, text: str) -> bool:
    found = _BOOLEANS.get(text.lower())
    if found is None:
        raise BadDaemonOption(f"{source} is {text!r}; it must be true or false")
    return found


def _duration(source: str, text: str) -> float:
    """Returns seconds of a duration like `900s`, `15m` or `1h30m`."""
    try:
        seconds = duration_ns(text) / SECOND
    except BadTime:
        seconds = 0.0
    if not 0 < seconds <= MAX_SLEEP_S:
        raise BadDaemonOption(f"{source} is {text!r}; it must be a duration above 0, such as 900s or 1h30m")
    return seconds
