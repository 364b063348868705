"""The pods that a usage report names, as bytes: a pod takes some 35 of them, where its objects took 700.

A report is replaced every minute, and of most pods nothing but the name is ever read. So the State keeps what
LoadAwareScheduling may read (name, class, amounts) encoded, and a pod is decoded when it is needed.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from shared.events.metrics import ClassReported
from shared.kube.node import PodUsage

Amount = str | int
"""A quantity as its text, or an integer in milli-cores or bytes."""

Group = tuple[str, tuple[str, ...]]
"""(priority class, names of the measured resources): most pods of a report have one of a few."""

NONE = b""
"""A report without pods."""

_MOST = 2**62
"""A larger amount is kept as this one; readers bound amounts far below it."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class ReportedUsage(NamedTuple):
    """The usage of one pod, by resource."""

    priority: str
    amounts: dict[str, Amount]


class ReportedPods(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The pods of a report that have any usage.

    Attributes:
        groups: what pods have in common.
        pods: `namespace/name` -> the pod's group and amounts, encoded.
    """

    groups: tuple[Group, ...] = ()
    pods: dict[str, msgspec.Raw] = {}

    def usage(self, name: str) -> ReportedUsage | None:
        """Returns the usage of a pod; None when the report does not name it."""
        encoded = self.pods.get(name)
        if encoded is None:
            return None
        group, *amounts = _amounts.decode(encoded)
        priority, resources = self.groups[group]
        return ReportedUsage(priority, dict(zip(resources, amounts, strict=True)))


_NO_PODS = ReportedPods()
_amounts = msgspec.msgpack.Decoder(list)
_decoder = msgspec.msgpack.Decoder(ReportedPods)


def reported_pods(data: bytes) -> ReportedPods:
    """Reads the bytes of `encoded_usages` or `encoded_classes`."""
    return _decoder.decode(data) if data else _NO_PODS


def encoded_usages(usages: Iterable[PodUsage]) -> bytes:
    """Encodes the pods of a NodeMetric; of several entries with one name the last one counts."""
    return _encoded(
        {
            f"{pod.namespace}/{pod.name}": (pod.priority, pod.pod_usage.resources)
            for pod in usages
            if pod.pod_usage is not None and pod.pod_usage.resources
        }
    )


def encoded_classes(classes: Iterable[ClassReported]) -> bytes:
    """Encodes the pods of a recorded report."""
    found: dict[str, tuple[str, Mapping[str, Amount]]] = {}
    for of in classes:
        for pod in of.pods:
            measured = (("cpu", pod.cpu_milli), ("memory", pod.memory))
            amounts: dict[str, Amount] = {
                name: min(max(amount, -_MOST), _MOST) for name, amount in measured if amount is not None
            }
            if amounts:
                found[pod.pod] = of.priority, amounts
    return _encoded(found)


def _encoded(found: Mapping[str, tuple[str, Mapping[str, Amount]]]) -> bytes:
    if not found:
        return NONE
    groups: dict[Group, int] = {}
    pods = {
        name: (groups.setdefault((priority, tuple(amounts)), len(groups)), *amounts.values())
        for name, (priority, amounts) in found.items()
    }
    buffer = bytearray()
    _encoder.encode_into((tuple(groups), pods), buffer)
    return bytes(buffer)  # `encode` would return bytes with room to grow, half as large again
