"""ImageLocality: prefers nodes that already have the images of a pod.

    S     = sum over containers and init containers of floor( size on the node * (nodes that have the image / nodes) )
    score = 100 * (clamp(S, low, high) - low) // (high - low),  low = 23 MiB, high = 1000 MiB a container

The share of nodes keeps pods from piling up on the one node that has an image.

Source: spec/scheduler-core.md 2.4; upstream Kubernetes pkg/scheduler/framework/plugins/imagelocality.
"""

from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.plugins.image_locality import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.node import Node

MIB = 1 << 20
LOW = 23 * MIB
HIGH = 1000 * MIB


class ImageLocality(Plugin):
    """Scores nodes by the bytes of the pod's images that they have; rejects none."""

    spec: ClassVar[PluginSpec] = SPEC

    def new_cache(self) -> PluginCache:
        """The images by node."""
        return ImageCache()

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Scores 0..100."""
        assert isinstance(plugin_cache, ImageCache), "the index hands back what new_cache made"
        return _ImageLocalityState(snapshot, plugin_cache)


class ImageCache(PluginCache):
    """The images on the nodes.

    Attributes:
        version: grows with every change.
        nodes: number of nodes.
    """

    def __init__(self) -> None:
        self.version = 0
        self.cached: dict[tuple[str, ...], tuple[int, int, Int64 | None]] = {}
        self._sizes: dict[str, dict[int, int]] = {}
        self._on: dict[int, dict[str, int]] = {}

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self._on)

    def set_node(self, row: int, node: Node | None) -> None:
        """Replaces the images of the node in a row."""
        after = None if node is None else {name: i.size_bytes for i in node.status.images for name in i.names}
        before = self._on.get(row)
        if before == after:
            return
        self.version += 1
        for name in before or ():
            held = self._sizes[name]
            del held[row]
            if not held:
                del self._sizes[name]
        if after is None:
            self._on.pop(row, None)
            return
        self._on[row] = after
        for name, size in after.items():
            self._sizes.setdefault(name, {})[row] = size

    def applies_to(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns False: an image counts once the node's status lists it."""
        return False

    def scores(self, images: tuple[str, ...], size: int) -> Int64 | None:
        """int64[size]: the score of each row for these images, one a container; None when no node has any of them."""
        cached = self.cached.get(images)
        if cached is None or cached[:2] != (self.version, size):
            if cached is None and len(self.cached) >= 1024:
                self.cached.clear()
            cached = self.cached[images] = (self.version, size, self._compute(images, size))
        return cached[2]

    def _compute(self, images: tuple[str, ...], size: int) -> Int64 | None:
        if not images:
            return None
        total = np.zeros(size, np.int64)
        for name in images:
            held = self._sizes.get(name)
            if held:
                rows = np.fromiter(held, np.intp, len(held))
                sizes = np.fromiter(held.values(), np.int64, len(held))
                total[rows] += (sizes * (len(held) / self.nodes)).astype(np.int64)
        high = HIGH * len(images)
        scores: Int64 = MAX_SCORE * (np.clip(total, LOW, high) - LOW) // (high - LOW)
        return scores if scores.any() else None


class _ImageLocalityState(PluginCycleState):
    """State of the plugin for one cycle."""

    def __init__(self, snapshot: CycleSnapshot, plugin_cache: ImageCache) -> None:
        self._size = snapshot.size
        self._plugin_cache = plugin_cache

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """None when no node has any of the images."""
        scores = self._plugin_cache.scores(images_of(pod_class), self._size)
        return None if scores is None else scores[rows]

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node."""
        scores = self._plugin_cache.scores(images_of(pod_class), self._size)
        return 0 if scores is None else int(scores[row])


def images_of(pod_class: PodClass) -> tuple[str, ...]:
    """The images of init containers and containers, one each, named as in node statuses."""
    images: tuple[str, ...] | None = pod_class.cached.get(ImageLocality)
    if images is None:
        spec = pod_class.pod.spec
        images = pod_class.cached[ImageLocality] = tuple(
            image_name(container.image) for container in (*spec.init_containers, *spec.containers)
        )
    return images


def image_name(image: str) -> str:
    """The image with the tag that is implied without one: `reg:5000/app` -> `reg:5000/app:latest`."""
    return f"{image}:latest" if image.rfind(":") <= image.rfind("/") else image
