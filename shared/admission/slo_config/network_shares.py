"""Validation of network QoS: the shares of the QoS classes against each other and against the node's bandwidth.

Source: spec/slo-controller.md 9, network checks, quirk Q11; upstream pkg/webhook/cm/plugins/sloconfig.
"""

from typing import NamedTuple

from shared.kube.quantity import BadQuantity, nanos, value
from shared.kube.slo_config import NetworkQos, QosConfig, ResourceQos, SystemConfig, SystemStrategy

_CLASSES = (("lsrClass", "lsr_class"), ("lsClass", "ls_class"), ("beClass", "be_class"))
_FIELDS = (
    ("ingressRequest", "ingress_request"),
    ("ingressLimit", "ingress_limit"),
    ("egressRequest", "egress_request"),
    ("egressLimit", "egress_limit"),
)

Found = tuple[str, str, str]
"""Path, strategy, text."""


class _Sums(NamedTuple):
    ingress: int = 0
    egress: int = 0


def network_problem(qos: QosConfig, system: SystemConfig) -> Found | None:
    """Returns the first network share that does not fit."""
    if qos.cluster_strategy is not None:
        found = _strategy(qos.cluster_strategy, "clusterStrategy", "cluster")
        if not isinstance(found, _Sums):
            return found
        if system.cluster_strategy is not None and (bad := _beyond(found, _bandwidth(system.cluster_strategy))):
            return f"clusterStrategy.{bad[0]}", "cluster", bad[1]
    for index, entry in enumerate(qos.node_strategies):
        path = f"nodeStrategies[{index}]"
        name = entry.name or path
        found = _strategy(entry, path, name)
        if not isinstance(found, _Sums):
            return found
        same = next((one for one in system.node_strategies if one.node_selector == entry.node_selector), None)
        if same is not None:
            total = _bandwidth(same)
        else:
            cluster = system.cluster_strategy
            total = _bandwidth(cluster) if not system.node_strategies and cluster is not None else 0
        if bad := _beyond(found, total):
            return f"{path}.{bad[0]}", name, bad[1]
    return None


def _strategy(qos: ResourceQos, path: str, name: str) -> _Sums | Found:
    ingress = egress = 0
    forms: set[type] = set()
    for class_name, attribute in _CLASSES:
        part = getattr(qos, attribute)
        network: NetworkQos | None = part.network_qos if part is not None else None
        if network is None:
            continue
        at = f"{path}.{class_name}.networkQOS"
        for field, field_attribute in _FIELDS:
            share = getattr(network, field_attribute)
            if problem := _bad_share(share):
                return f"{at}.{field}", name, problem
        for field, share in (("ingressRequest", network.ingress_request), ("egressRequest", network.egress_request)):
            if share is None:
                continue
            forms.add(type(share))
            if len(forms) > 1:
                return (
                    f"{at}.{field}",
                    name,
                    f"is {share!r}; write all requests of a strategy in one way, percent or quantity",
                )
        ingress += _raw(network.ingress_request)
        egress += _raw(network.egress_request)
    for field, total in (("ingressRequest", ingress), ("egressRequest", egress)):
        if total > 100:
            return f"{path}.{field}", name, f"adds up to {total} over the classes; give at most 100"
    return _Sums(ingress, egress)


def _bad_share(share: int | str | None) -> str:
    if isinstance(share, int) and not 0 <= share <= 100:
        return f"is {share}; give a percentage from 0 to 100"
    if isinstance(share, str):
        try:
            nanos(share)
        except BadQuantity as error:
            return f"is {share!r}: {error}"
    return ""


def _beyond(sums: _Sums, total: int) -> tuple[str, str] | None:
    for field, size in (("ingressRequest", sums.ingress), ("egressRequest", sums.egress)):
        if size > total:
            return field, f"adds up to {size}, more than totalNetworkBandwidth, which is {total}"
    return None


def _raw(share: int | str | None) -> int:
    return value(nanos(share)) if isinstance(share, str) else share or 0


def _bandwidth(system: SystemStrategy) -> int:
    return value(nanos(str(system.total_network_bandwidth or 0)))
