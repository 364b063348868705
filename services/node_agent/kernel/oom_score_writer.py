"""Sets `oom_score_adj` of containers' processes from their pods' annotations. The values stay at the end.

Source: spec/node-agent.md 4.10.
"""

import logging
from collections.abc import Iterable

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.runtime_hooks import oom_score_from_annotations
from shared.kube.oom_score_annotations import OOM_SCORE_ADJ, OOM_SCORE_ADJ_SPEC

log = logging.getLogger(__name__)


class OomScores:
    """Writes scores that differ."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._logged: set[str] = set()

    def reconcile(self, pods: Iterable[PodCgroups]) -> None:
        """Applies the scores of all pods that have the annotation."""
        for each in pods:
            annotations = each.pod.metadata.annotations or {}
            if not annotations.keys() & {OOM_SCORE_ADJ, OOM_SCORE_ADJ_SPEC}:
                continue
            for name, cid in each.node_pod.ids.items():
                if (score := oom_score_from_annotations.score(annotations, name)) is not None:
                    self._put(each, cid, str(score))

    def _put(self, each: PodCgroups, cid: str, score: str) -> None:
        for pid in self._processes.of(each.containers[cid]):
            file = self._processes.proc / f"{pid}/oom_score_adj"
            try:
                if file.read_text().strip() != score:
                    file.write_text(score)
            except OSError as error:
                text = f"the OOM score of pod {each.pod.metadata.key} cannot be set: {error.strerror}"
                if text not in self._logged:
                    self._logged.add(text)
                    log.warning(text)
