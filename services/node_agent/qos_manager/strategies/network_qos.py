"""Network QoS: guaranteed and maximal bandwidth of LS and BE on the node's network interface.

Amounts are bits a second, as in `totalNetworkBandwidth` and in the annotation of a pod.
Source: spec/node-agent.md 3.9, E25, E26.
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
    """One class in one direction: guaranteed and maximal bandwidth; each may have been given as a percentage."""

    least: int = 0
    most: int = 0
    least_is_percent: bool = False
    most_is_percent: bool = False


class Shares(NamedTuple):
    """The shares of the node.

    Attributes:
        total: of the network interface; 0: not set.
    """

    total: int = 0
    ls_in: Share = Share()
    ls_out: Share = Share()
    be_in: Share = Share()
    be_out: Share = Share()


class PodLimits(NamedTuple):
    """Maximal bandwidth of one pod; 0: no limit of its own."""

    ingress: int = 0
    egress: int = 0


def policy(spec: NodeSloSpec) -> str:
    """Returns the policy that separates classes; `tc` when none is set."""
    policies = spec.resource_qos_strategy.policies if spec.resource_qos_strategy else None
    return (policies.net_qos_policy if policies else None) or TC


def shares(spec: NodeSloSpec) -> Shares:
    """Returns the shares of a NodeSLO; a disabled class, and an amount beyond the total, has none."""
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
    """Returns a pod's own limits; None when its annotation is invalid."""
    text = (pod.metadata.annotations or {}).get(ANNOTATION)
    if not text:
        return PodLimits()
    try:
        annotation: _PodAnnotation = read_json(text, _PodAnnotation)
        return PodLimits(value(nanos(annotation.ingress_limit)), value(nanos(annotation.egress_limit)))
    except (msgspec.MsgspecError, BadQuantity):
        return None


def minor_of(pod: Pod) -> int | None:
    """Returns the traffic class of a pod by its label; None without one."""
    return _MINOR_OF.get(raw_qos(pod))


def class_id(minor: int) -> int:
    """Returns the value of `net_cls.classid`: E26."""
    return (MAJOR << 16) + minor


class _PodAnnotation(msgspec.Struct, rename="camel"):
    ingress_limit: str = "0"
    egress_limit: str = "0"


def _enabled(qos_class: QosClass | None) -> NetworkQos:
    network = qos_class.network_qos if qos_class else None
    return network if network is not None and network.enable else NetworkQos()


def _share(total: int, least: int | str | None, most: int | str | None) -> Share:
    return Share(_amount(total, least), _amount(total, most), isinstance(least, int), isinstance(most, int))


def _amount(total: int, amount: int | str | None) -> int:
    """Returns an amount; an integer is percent of the total."""
    if isinstance(amount, str):
        found = _bits(amount)
        return found if found <= total else 0
    return total * amount // 100 if amount is not None and 0 <= amount <= 100 else 0


def _bits(amount: str | float) -> int:
    try:
        return max(value(nanos(str(amount))), 0)
    except BadQuantity:
        return 0
