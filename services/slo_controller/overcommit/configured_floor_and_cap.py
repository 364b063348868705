"""The floor and the cap of a strategy (`koordstream`), and NUMA zones that sum to no more than their node."""

from services.slo_controller.overcommit import noderesource_plugin_problems
from services.slo_controller.overcommit.batch_resources import BatchResources
from services.slo_controller.overcommit.noderesource_plugin_problems import PluginProblem
from shared.domain.cpu_memory import MILLI
from shared.kube.quantity import BadQuantity, milli, nanos
from shared.kube.slo_config import ColocationStrategy


def bounded(
    batch: BatchResources | None, strategy: ColocationStrategy, problems: list[PluginProblem]
) -> BatchResources | None:
    """Applies the floor and the cap of the strategy to the node, and fits its zones to the result.

    A floor is at most the capacity that is not reserved. Zones follow a floor or a cap; otherwise they keep the
    calculated amounts, unless these sum to more than the node's.
    """
    if batch is None:
        return None
    cpu, memory, limits = batch.cpu, batch.memory, strategy.koordstream
    if limits is not None:
        floor, cap = _quantities(limits.floor, "floor", problems), _quantities(limits.cap, "cap", problems)
        most = batch.terms.capacity.minus(batch.terms.reserved).not_negative()
        cpu = max(cpu, milli(min(floor.get("cpu", 0), most.cpu)))
        memory = max(memory, min(floor.get("memory", 0), most.memory))
        cpu = min(cpu, milli(cap["cpu"])) if "cpu" in cap else cpu
        memory = min(memory, cap["memory"]) if "memory" in cap else memory
    return batch._replace(cpu=cpu, memory=memory, zones=_fitted(batch, cpu, memory))


def _fitted(batch: BatchResources, cpu: int, memory: int) -> dict[str, BatchResources]:
    """Returns the zones with amounts that follow from those of the node: milli-cores and nano-bytes."""
    zones = batch.zones
    if not zones:
        return zones
    cpus = _shares([zone.cpu for zone in zones.values()], batch.cpu, cpu)
    memories = _shares([zone.memory for zone in zones.values()], batch.memory, memory, MILLI)
    return {
        name: zone._replace(cpu=own_cpu, memory=own_memory)
        for (name, zone), own_cpu, own_memory in zip(zones.items(), cpus, memories, strict=True)
    }


def _shares(sizes: list[int], calculated: int, amount: int, unit: int = 1) -> list[int]:
    """Divides a node's amount in the ratio of its zones' sizes, in whole units; the last zone takes the remainder.

    The sizes stay if the amount is the calculated one, and they exceed it by no more than a unit each, which is the
    rounding of the formulas.
    """
    total = sum(sizes)
    if amount == calculated and total <= amount + unit * len(sizes):
        return sizes
    weights = sizes if total else [1] * len(sizes)
    shares = [amount * weight // sum(weights) // unit * unit for weight in weights]
    shares[-1] += amount - sum(shares)
    return shares


def _quantities(quantities: dict[str, str] | None, name: str, problems: list[PluginProblem]) -> dict[str, int]:
    amounts = {}
    for resource, text in (quantities or {}).items():
        try:
            amounts[resource] = nanos(text)
        except BadQuantity as error:
            problems.append(
                PluginProblem(
                    noderesource_plugin_problems.BATCH,
                    noderesource_plugin_problems.CALCULATE,
                    f"koordstream.{name}.{resource}: {error}",
                )
            )
    return amounts
