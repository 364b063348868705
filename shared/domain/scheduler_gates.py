"""Feature gates of the scheduler, by upstream's names; all are off by default.

Source: spec/scheduler-workloads.md 5; upstream pkg/features/scheduler_features.go.
"""

from shared.errors import KoordError

OMIT_NODE_LABELS = "OmitNodeLabelsForReservation"
"""A reservation affinity is matched by the labels of Reservations alone, not by those of their nodes."""

SKIP_FITS_NODE = "SkipReservationFitsNode"
"""Where one Reservation of a node matches, the reservation plugin does not check what is free beside it:
NodeResourcesFit does."""

LAZY_RESTORE = "LazyReservationRestore"
"""Decides when upstream restores capacity; no result depends on it."""

DEVICE_PLUGINS = "DevicePluginAdaption"
"""Pods with devices get the annotations by which device plugins of vendors find them."""

RESIZE_POD = "ResizePod"
"""A Reservation that was given devices holds all amounts of them, not only those that its template requests."""

KNOWN = (LAZY_RESTORE, OMIT_NODE_LABELS, SKIP_FITS_NODE, DEVICE_PLUGINS, RESIZE_POD)


class BadGates(KoordError):
    """A text of feature gates that cannot be used."""


def scheduler_gates(text: str) -> frozenset[str]:
    """Returns the gates that are on.

    Args:
        text: `Name=true,Other=false`.

    Raises:
        BadGates: a gate is unknown, or its value neither true nor false.
    """
    on: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in KNOWN:
            raise BadGates(f"there is no gate {name!r}; known are {', '.join(KNOWN)}")
        if value.lower() not in ("true", "false"):
            raise BadGates(f"gate {name} is {value!r}; give {name}=true or {name}=false")
        on[name] = value.lower() == "true"
    return frozenset(name for name, is_on in on.items() if is_on)
