"""The kinds of plugins, and what a registry knows about each plugin.

Source: spec/descheduler.md 1.2.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

DESCHEDULE, BALANCE, EVICT, FILTER = "deschedule", "balance", "evict", "filter"
KINDS = (DESCHEDULE, BALANCE, EVICT, FILTER)

MIGRATION_CONTROLLER = "MigrationController"
"""The plugin that moves pods by PodMigrationJobs: the default one of the sets `evict` and `filter`."""

ReadArgs = Callable[[Mapping[str, Any], str], Any]
"""Reads the arguments of a plugin, given as plain data without `apiVersion` and `kind`, and their place in the
configuration; raises `BadConfig`. It is called with an empty mapping for a plugin without arguments.
"""


class PluginKind(NamedTuple):
    """A plugin: the sets it belongs to, its arguments, and its functions.

    Attributes:
        kinds: the sets that it can be enabled in.
        read_args: reads its arguments. What it returns may have `notes`: what of them has no effect, as text.
        run: of a plugin of `deschedule` or `balance`: chooses pods (`framework.cycle_context.Plugin`).
        new_filter: of a plugin of `filter`: (State, arguments, now) -> `framework.cycle_context.Filter`.
    """

    kinds: tuple[str, ...]
    read_args: ReadArgs
    run: Callable[[Any], Any] | None = None
    new_filter: Callable[[Any, Any, int], Any] | None = None


Registry = Mapping[str, PluginKind]
"""Plugin name -> its kind."""
