"""Distribution of load over the nodes: the figures and the picture of the demo's summary."""

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from cli.demo.run_progress import Progress

BUCKET_PERCENT = 10
_BARS = " ▁▂▃▄▅▆▇█"


class Spread(NamedTuple):
    """Cpu in use, in percent of a node's capacity, over all nodes; and the pods that went to hot ones."""

    mean: float
    deviation: float
    highest: float
    above_80: int
    pods_on_hot: int
    nodes_by_tenth: tuple[int, ...]

    def picture(self) -> str:
        """One character for each tenth of capacity, as high as nodes are many."""
        most = max(self.nodes_by_tenth)
        return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] for count in self.nodes_by_tenth)


def spread_of(progress: Progress) -> Spread:
    """The spread at the end of a run."""
    percents = [load.cpu_percent for load in progress.loads.values()]
    return Spread(
        mean=fmean(percents),
        deviation=pstdev(percents),
        highest=max(percents),
        above_80=sum(percent > 80 for percent in percents),
        pods_on_hot=sum(node in progress.hot for node in progress.places.values()),
        nodes_by_tenth=_histogram(percents),
    )


def _histogram(percents: Sequence[float]) -> tuple[int, ...]:
    counts = [0] * (100 // BUCKET_PERCENT)
    for percent in percents:
        counts[min(int(percent // BUCKET_PERCENT), len(counts) - 1)] += 1
    return tuple(counts)
