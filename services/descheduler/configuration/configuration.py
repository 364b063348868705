"""A DeschedulerConfiguration that has been read and checked."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from shared.kube.selectors import LabelSelector


class Profile(NamedTuple):
    """A profile.

    Attributes:
        sets: kind -> names of the plugins enabled, in order; without a plugin in `evict` all cases are dry runs.
        args: plugin -> its arguments, as its reader returned them; of every enabled plugin.
        node_selector: of the nodes that its plugins see; None for all.
    """

    name: str
    sets: Mapping[str, tuple[str, ...]]
    args: Mapping[str, Any]
    node_selector: LabelSelector | None


class Configuration(NamedTuple):
    """A configuration that has been read.

    Attributes:
        interval_ns: from the start of one cycle to the next; 0: one cycle, then none until the configuration changes.
        dry_run: cycles are recorded, and nothing is created.
        node_selector: of the nodes that any profile sees; None for all.
        max_per_node, max_per_namespace, max_total: evictions of one cycle; None: no limit.
        notes: the parts without effect in this release, as text.
    """

    interval_ns: int
    dry_run: bool
    node_selector: LabelSelector | None
    max_per_node: int | None
    max_per_namespace: int | None
    max_total: int | None
    profiles: tuple[Profile, ...]
    notes: tuple[str, ...]
