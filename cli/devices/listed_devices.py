"""The devices of nodes as `koord devices` prints them."""

import msgspec

PERCENT = 100


class PodShare(msgspec.Struct, frozen=True):
    """The share of a device that a pod has; in percent."""

    pod: str
    percent: int


class Card(msgspec.Struct, frozen=True):
    """A device.

    Attributes:
        healthy: pods may get it.
        numa: its NUMA node; -1 where unknown.
        pods: those with a share of it, by name.
    """

    type: str
    minor: int
    id: str
    healthy: bool
    numa: int
    pcie: str
    pods: tuple[PodShare, ...]

    @property
    def percent(self) -> int:
        """The share that pods have."""
        return sum(each.percent for each in self.pods)


class Stranded(msgspec.Struct, frozen=True):
    """GPUs that are free and that pods of the workload cannot use, by what keeps them from it; each a mean over these
    pods.

    Attributes:
        model: their node selectors and affinities exclude the node.
        cards: no GPU has enough left, or too few have.
        cpu, memory: the node has too little left.
    """

    model: float = 0
    cards: float = 0
    cpu: float = 0
    memory: float = 0

    @property
    def total(self) -> float:
        """All of it."""
        return self.model + self.cards + self.cpu + self.memory

    def __add__(self, other: "Stranded") -> "Stranded":
        return Stranded(
            self.model + other.model, self.cards + other.cards, self.cpu + other.cpu, self.memory + other.memory
        )

    def times(self, factor: float) -> "Stranded":
        """Each part times a factor."""
        return Stranded(self.model * factor, self.cards * factor, self.cpu * factor, self.memory * factor)


class GpuSums(msgspec.Struct, frozen=True):
    """GPUs in numbers.

    Attributes:
        gpus: that are healthy; unhealthy: the others.
        allocated: shares of pods, of healthy and unhealthy ones.
        free: of the healthy ones.
        usable: the mean over the pods of the workload of what they could use of `free`; None while no pod requests
            GPUs.
        stranded: the rest of `free`.
    """

    gpus: int
    unhealthy: int
    allocated: float
    free: float
    usable: float | None
    stranded: Stranded


class NodeDevices(msgspec.Struct, frozen=True):
    """The devices of a node.

    Attributes:
        model: of its GPUs, by the node's label.
        unrecorded: pods on it that request GPUs and of which the log does not have which.
    """

    name: str
    model: str
    sums: GpuSums
    cards: tuple[Card, ...]
    unrecorded: tuple[str, ...]


class Optimum(msgspec.Struct, frozen=True):
    """The GPUs that pods could have at most, if all of them were placed anew and pods of the same mix followed.

    Attributes:
        gpus: an upper bound.
        gap: what the bound has more than the allocated and the usable GPUs together.
    """

    gpus: float
    gap: float


class ClusterDevices(msgspec.Struct, frozen=True):
    """The devices of all nodes.

    Attributes:
        workload_pods, workload_types: pods that request GPUs, with and without a node, and the number of their types.
        optimum: None where it is not known; `without_optimum` has the reason.
    """

    nodes: tuple[NodeDevices, ...]
    sums: GpuSums
    workload_pods: int
    workload_types: int
    optimum: Optimum | None
    without_optimum: str


def sums_of(nodes: list[NodeDevices]) -> GpuSums:
    """Adds up nodes."""
    each = [node.sums for node in nodes]
    usable = [one.usable for one in each if one.usable is not None]
    stranded = Stranded()
    for one in each:
        stranded += one.stranded
    return GpuSums(
        sum(one.gpus for one in each),
        sum(one.unhealthy for one in each),
        sum(one.allocated for one in each),
        sum(one.free for one in each),
        sum(usable) if usable else None,
        stranded,
    )
