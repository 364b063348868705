"""Shares of the node's network by class: what LS and BE are kept, and what they may have at most.

Source: spec/node-agent.md 3.9, E25, E26.

Amounts are bits a second, as `totalNetworkBandwidth` and the annotation of a pod state them.
"""

from typing import NamedTuple

import msgspec

from shared.domain.qos import QoS, raw_qos
from shared.domain.slo_defaults import NodeSloSpec
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity, nanos, value
from shared.kube.slo_config import NetworkQos, QosClass

ANNOTATION = "koordinator.sh/networkQOS"
TC, TERWAY = "tc", "terway-qos"
ROOT_MINOR, SYSTEM_MINOR, LS_MINOR, BE_MINOR = 1, 2, 3, 4
MAJOR = 1
_MINOR_OF = {
    QoS.SYSTEM: SYSTEM_MINOR,
    QoS.LSE: LS_MINOR,
    QoS.LSR: LS_MINOR,
    QoS.LS: LS_MINOR,
    QoS.BE: BE_MINOR,
}


class Share(NamedTuple):
    """One class in one direction: kept, and at most; whether each was stated as a percentage."""

    least: int = 0
    most: int = 0
    least_is_percent: bool = False
    most_is_percent: bool = False


class Shares(NamedTuple):
    """The whole node.

    Attributes:
        total: of the network card; 0: not stated.
    """

    total: int = 0
    ls_in: Share = Share()
    ls_out: Share = Share()
    be_in: Share = Share()
    be_out: Share = Share()


class PodLimits(NamedTuple):
    """What one pod may have at most; 0: no limit of its own."""

    ingress: int = 0
    egress: int = 0


def policy(spec: NodeSloSpec) -> str:
    """By what means classes are kept apart; `tc` when nothing is stated."""
    policies = spec.resource_qos_strategy.policies if spec.resource_qos_strategy else None
    return (policies.net_qos_policy if policies else None) or TC


def shares(spec: NodeSloSpec) -> Shares:
    """What a NodeSLO asks for; a class that is not enabled, and an amount beyond the total, has no share."""
    total = _bits((spec.system_strategy and spec.system_strategy.total_network_bandwidth) or 0)
    qos = spec.resource_qos_strategy
    ls, be = (_enabled(qos.ls_class), _enabled(qos.be_class)) if qos else (NetworkQos(), NetworkQos())
    return Shares(
        total,
        _share(total, ls.ingress_request, ls.ingress_limit),
        _share(total, ls.egress_request, ls.egress_limit),
        _share(total, be.ingress_request, be.ingress_limit),
        _share(total, be.egress_request, be.egress_limit),
    )


def limits_of(pod: Pod) -> PodLimits | None:
    """A pod's own limits; None when its annotation cannot be read."""
    text = (pod.metadata.annotations or {}).get(ANNOTATION)
    if not text:
        return PodLimits()
    try:
        annotation: _PodAnnotation = read_json(text, _PodAnnotation)
        return PodLimits(value(nanos(annotation.ingress_limit)), value(nanos(annotation.egress_limit)))
    except (msgspec.MsgspecError, BadQuantity):
        return None


def minor_of(pod: Pod) -> int | None:
    """The traffic class of a pod by its label; None without one."""
    return _MINOR_OF.get(raw_qos(pod))


def class_id(minor: int) -> int:
    """What `net_cls.classid` holds: E26."""
    return (MAJOR << 16) + minor


class _PodAnnotation(msgspec.Struct, rename="camel"):
    ingress_limit: str = "0"
    egress_limit: str = "0"


def _enabled(qos_class: QosClass | None) -> NetworkQos:
    network = qos_class.network_qos if qos_class else None
    return network if network is not None and network.enable else NetworkQos()


def _share(total: int, least: int | str | None, most: int | str | None) -> Share:
    return Share(_of(total, least), _of(total, most), isinstance(least, int), isinstance(most, int))


def _of(total: int, amount: int | str | None) -> int:
    """An amount: an integer is percent of the total."""
    if isinstance(amount, str):
        found = _bits(amount)
        return found if found <= total else 0
    return total * amount // 100 if amount is not None and 0 <= amount <= 100 else 0


def _bits(amount: str | float) -> int:
    try:
        return max(value(nanos(str(amount))), 0)
    except BadQuantity:
        return 0
