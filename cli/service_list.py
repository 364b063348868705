"""The services there are: what `koord run` takes, and what a database must hold for them.

Importing one is left to its user.
"""

import importlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from shared.errors import KoordError

if TYPE_CHECKING:
    from shared.runtime.manifest import Manifest
    from shared.runtime.service import Service
    from shared.settings import Settings

SERVICES = (
    "gateway",
    "scheduler",
    "quota-ledger",
    "slo-controller",
    "descheduler",
    "simulator",
    "metrics-ingest",
    "action-ingest",
    "device-discovery",
    "audit",
)
AGENTS = ("node-agent",)
"""What runs on each node: no log, no database, hence no `Service`; its module has `run` and what it reads from the
environment.
"""

DEVICE_DAEMON = "device-daemon"
"""Runs on nodes with accelerators beside the agent, with Koordinator's flags; `koord up` does not start it."""
RUNTIME_PROXY = "runtime-proxy"
"""Runs on nodes between kubelet and container runtime, with Koordinator's flags; `koord up` does not start it."""

SHARDED = ("metrics-ingest", "action-ingest", "device-discovery")
"""Services of which each shard has its own: they write a family of contexts."""

_FOLDERS = {
    "metrics-ingest": "services.metrics_ingest.agent_reports",
    "action-ingest": "services.metrics_ingest.agent_actions",
}
"""Of services that have no folder named after them."""

PARTITION_ROWS = 1_000_000

CONTEXTS: Mapping[str, int] = {
    "cluster": PARTITION_ROWS,
    "scheduling": PARTITION_ROWS,
    "quota": PARTITION_ROWS,
    "slo": PARTITION_ROWS // 10,
    "descheduling": PARTITION_ROWS // 10,
    "metrics-*": PARTITION_ROWS // 10,
    "nodes-*": PARTITION_ROWS // 10,
    "devices-*": PARTITION_ROWS // 10,
    "audit": PARTITION_ROWS // 10,
}
"""Context, or family of contexts, -> events that one partition of its log holds."""


def metrics_shards() -> int:
    """The shards that KOORD_METRICS_SHARDS names, or one.

    Raises:
        BadSetting: it is no such number.
    """
    from shared.runtime.sharding import Installation

    return Installation.load("", os.environ).metrics_shards


def contexts(shards: int = 0) -> dict[str, int]:
    """The contexts of an installation; by default with as many shards as `metrics_shards`.

    Raises:
        BadSetting: KOORD_METRICS_SHARDS is no number of shards.
    """
    from shared.runtime.sharding import expanded

    return expanded(CONTEXTS, shards or metrics_shards())


class NoSuchService(KoordError):
    """The name given is no service's."""


def _folder(name: str) -> str:
    return _FOLDERS.get(name) or f"services.{name.replace('-', '_')}"


def manifest(name: str) -> "Manifest":
    """Returns the manifest of a service, without importing the service."""
    found: Manifest = importlib.import_module(f"{_folder(name)}.service_manifest").MANIFEST
    return found


def settings_of(name: str) -> "tuple[type[Settings], ...]":
    """Returns the settings of a service or an agent that have its prefix."""
    if name in AGENTS:
        from services.node_agent.settings import AgentSettings

        return (AgentSettings,)
    from shared.runtime.retention_settings import RetentionSettings

    return load(name).settings, RetentionSettings


def variables_without_effect(names: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each variable with the prefix of one of these services that it does not read; services
    without any variable are not imported.
    """
    from shared.settings import unknown_variables, variable_of

    found = []
    for name in dict.fromkeys(names):
        if any(each.startswith(variable_of(name, "") + "_") for each in environment):
            found += unknown_variables(name, settings_of(name), environment)
    return found


def check_settings(names: Iterable[str], environment: Mapping[str, str]) -> None:
    """Reads the variables of these services, before any of them starts and fails by one; services without any variable
    are not imported.

    Raises:
        BadSetting: a value does not fit; names the variable.
    """
    from shared.settings import MissingSetting, variable_of

    for name in dict.fromkeys(names):
        if any(each.startswith(variable_of(name, "") + "_") for each in environment):
            for settings in settings_of(name):
                with suppress(MissingSetting):  # some are given by what starts the service
                    settings.load(name, environment)


def load(name: str) -> "Service":
    """Imports a service.

    Raises:
        NoSuchService: with the names there are.
        KoordError: a library it needs is not installed.
    """
    if name not in SERVICES:
        from shared.closest_name import did_you_mean  # only here: it takes a tenth of the command's start

        meant = did_you_mean(name, SERVICES)
        raise NoSuchService(f"there is no service {name!r}{meant}; there are {', '.join(SERVICES)}")
    try:
        service: Service = importlib.import_module(f"{_folder(name)}.service").SERVICE
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in {"services", "shared"}:
            raise  # ours: a broken installation, not a missing extra
        raise KoordError(f"service {name} needs {error.name}; pip install 'koordstream[{name}]'") from error
    return service
