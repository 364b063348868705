"""Locks on nodes, by which the device plugins of Cambricon and MetaX serve one pod of a node at a time.

Such a plugin does not learn from the kubelet which pod it is called for. It takes the one that the node's lock names,
and removes the lock when that pod has its devices. A lock is an annotation of the node, `<RFC 3339>,<namespace>,<pod>`:

    cambricon.com/dsmlu.lock: 2026-05-01T08:00:00Z,shop,web-0

A lock that is older than LOCK_TIMEOUT_NS, or whose pod no longer exists, counts no longer.

Source: spec/scheduler-workloads.md 3.9; upstream pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go.
"""

from collections.abc import Mapping
from typing import NamedTuple

from shared.errors import KoordError
from shared.kube.device import DSMLU_PROFILE, METAX_DEVICES
from shared.kube.instants import SECOND, BadTime, instant_ns, instant_text

DSMLU_LOCK, HAMI_LOCK = "cambricon.com/dsmlu.lock", "hami.io/mutex.lock"
NODE_LOCKS = (DSMLU_LOCK, HAMI_LOCK)
"""Annotations of a node that are locks."""

_LOCK_OF: Mapping[str, str] = {DSMLU_PROFILE: DSMLU_LOCK, METAX_DEVICES: HAMI_LOCK}
"""Annotation of a pod for a device plugin -> the lock under which the plugin reads it."""

LOCK_TIMEOUT_NS = 300 * SECOND


class BadLock(KoordError):
    """A text that is no lock."""


class NodeLock(NamedTuple):
    """A lock on a node: since when, in nanoseconds since the epoch, and for which pod, as namespace/name."""

    since_ns: int
    pod: str

    def is_stale(self, now_ns: int) -> bool:
        """Reports whether the time of the lock is too far from `now_ns`: no plugin takes that long. A lock of the
        future is stale as well, since it would never end.
        """
        return abs(now_ns - self.since_ns) > LOCK_TIMEOUT_NS


def node_lock_of(annotations: Mapping[str, str]) -> str:
    """Returns the lock that a pod with these annotations needs on its node; empty for none."""
    return next((lock for name, lock in _LOCK_OF.items() if name in annotations), "")


def lock_text(pod: str, now_ns: int) -> str:
    """Formats a lock for a pod, `namespace/name`, to the second."""
    namespace, _, name = pod.rpartition("/")
    return f"{instant_text(now_ns // SECOND * SECOND)},{namespace},{name}"


def read_lock(text: str) -> NodeLock:
    """Parses a lock.

    Raises:
        BadLock: the text does not have three parts, or does not begin with an instant.
    """
    parts = text.split(",")
    if len(parts) != 3:
        raise BadLock(f"{text!r} is no lock: it is <instant>,<namespace>,<pod>")
    try:
        return NodeLock(instant_ns(parts[0]), f"{parts[1]}/{parts[2]}")
    except BadTime as error:
        raise BadLock(f"{text!r} is no lock: {error}") from error
