"""The `numa` vectors: what nodes offer, merging of hints, and pods against one node."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.numa.ledger import ZoneUse
from services.scheduler.plugins.numa.combinations import Hint
from services.scheduler.plugins.numa.merge import mask_of, merge, numas_of
from services.scheduler.plugins.numa.options import NodeOptions, Zone, node_options
from services.scheduler.reasons import Reason, text
from shared.domain.cpu_set import cpu_list
from shared.kube.node import Node
from shared.kube.node_topology import NodeResourceTopology


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What our code says to one case's input, in the shape of the case's output."""
    if op == "options":
        return _options(_read(given))
    if op == "merge":
        return _merge(given)
    raise NotImplementedError(op)


def _read(given: Mapping[str, Any]) -> NodeOptions:
    reported = given.get("nodeResourceTopology")
    return node_options(
        msgspec.convert(given["node"], Node), msgspec.convert(reported, NodeResourceTopology) if reported else None
    )


def _options(options: NodeOptions) -> dict[str, Any]:
    topology = options.topology
    return {
        "valid": topology.valid,
        "numCPUs": len(topology.cpus),
        "numCores": len(topology.in_core),
        "numNodes": len(topology.in_numa),
        "numSockets": len(topology.sockets),
        "cpusPerCore": topology.cpus_per_core,
        "cpusPerNode": topology.cpus_per_numa,
        "cpusPerSocket": topology.cpus_per_socket,
        "reservedCPUs": cpu_list(options.reserved),
        "nrtPolicy": options.reported_policy,
        "nodePolicy": options.numa_policy,
        "nodeBindPolicy": options.bind_policy,
        "numaTotal": _zones(options.reported),
        "numaTotalAmplified": _zones(options.zones),
        "ratios": dict(options.reported_ratios),
    }


def _zones(zones: Iterable[Zone]) -> list[dict[str, Any]]:
    return [{"node": zone.numa, "resources": dict(zone.total)} for zone in zones]


def _merge(given: Mapping[str, Any]) -> dict[str, Any]:
    status = dict(enumerate(map(ZoneUse, given["numaStatus"])))
    providers = [
        {name: None if hints is None else [_hint(hint) for hint in hints] for name, hints in (provider or {}).items()}
        for provider in given["providers"]
    ]
    merged = merge(
        given["policy"], given["numaNodes"], providers, given["exclusive"], lambda n: status.get(n, ZoneUse.IDLE)
    )
    said = {"best": _affinity(merged.best), "admit": merged.admitted}
    reasons = [Reason("UnsatisfiedNuma", name) for name in merged.unsatisfied]
    if merged.unaligned or not (merged.admitted or reasons):
        reasons.append(Reason("UnalignedNuma", merged.unaligned))
    return said | {"reasons": sorted(text(*reason) for reason in reasons)}


def _hint(plain: Mapping[str, Any]) -> Hint:
    mask = plain.get("mask")
    return Hint(
        None if mask is None else mask_of(mask),
        plain["preferred"],
        plain.get("score", 0),
        plain.get("unsatisfied", False),
    )


def _affinity(hint: Hint) -> dict[str, Any]:
    return {
        "mask": None if hint.mask is None else numas_of(hint.mask),
        "preferred": hint.preferred,
        "score": hint.score,
        "unsatisfied": hint.unsatisfied,
    }
