"""Files of the node as a whole: kernel settings, resctrl groups, and OOM scores of containers' processes. Source: spec/node-agent.md 3.6, 3.8, 4.10."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from services.node_agent.cgroup.found import Found
from services.node_agent.hooks import oom_score
from services.node_agent.layout import Placed
from services.node_agent.qos import resctrl, system_config
from shared.domain.slo_defaults import NodeSloSpec
from shared.kube.node import Node
from shared.kube.quantity import nanos, value
from shared.kube.slo_config import QosClass

log = logging.getLogger(__name__)

FILE = "found-system.jsonl"
RESCTRL = "node.koordinator.sh/resctrl"
"""A pod with this annotation has a group of its own."""


class NodeFiles:
    """Writes them, only where they differ, and puts kernel settings back at the end.

    Groups of resctrl stay, with the schemata of the root; processes stay in them until they end. OOM scores stay.
    """

    def __init__(self, proc: Path, sys: Path, procs_root: Path, state_dir: Path | None) -> None:
        self._roots = {"proc": proc, "sys": sys}
        self._resctrl = sys / "fs/resctrl"
        self._procs_root = procs_root
        self._found = Found(state_dir, FILE)
        self._found.load()
        self._said: set[str] = set()

    def round(self, spec: NodeSloSpec, node: Node | None, pods: Iterable[Placed], gates: Mapping[str, bool]) -> None:
        """Make all of them hold what they should."""
        placed = list(pods)
        if gates["SystemConfig"] and spec.system_strategy and node is not None:
            capacity = value(nanos((node.status.capacity or {}).get("memory", "0")))
            for file, text in system_config.wanted(spec.system_strategy, capacity).items():
                self._put(file, text)
        if gates["RdtResctrl"]:
            self._groups(spec, placed)
        if gates["OOMScoreAdj"]:
            self._scores(placed)

    def release(self) -> None:
        """Put kernel settings back, where they still hold our value."""
        for (file, _), (before, ours) in self._found.entries():
            path = self._path(file)
            try:
                if path.read_text().strip() == ours:
                    path.write_text(before)
            except OSError as error:
                self._say(f"{file} cannot be put back: {error}")
        self._found.clear()

    def _path(self, file: str) -> Path:
        root, _, rest = file.partition("/")
        return self._roots[root] / rest

    def _put(self, file: str, text: str) -> None:
        path = self._path(file)
        try:
            before = path.read_text().strip()
            if before == text:
                self._found.adopt((file, ""), text)
                return
            path.write_text(text)
            self._found.remember((file, ""), before, text)
        except FileNotFoundError:
            return  # this kernel has no such setting
        except OSError as error:
            self._say(f"{file} cannot be set to {text}: {error}")

    def _groups(self, spec: NodeSloSpec, pods: Iterable[Placed]) -> None:
        qos = spec.resource_qos_strategy
        mask_file = self._resctrl / "info/L3/cbm_mask"
        if qos is None or not mask_file.exists():
            return
        classes: dict[str, QosClass | None] = {"LSR": qos.lsr_class, "LS": qos.ls_class, "BE": qos.be_class}
        if not any(each and each.resctrl_qos and each.resctrl_qos.enable for each in classes.values()):
            return
        try:
            mask, caches = mask_file.read_text().strip(), self._caches()
            for name, stated in classes.items():
                group = self._resctrl / name
                group.mkdir(mode=0o755, exist_ok=True)
                self._schemata(group / "schemata", stated, mask, caches)
            for each in pods:
                group_name = resctrl.group_of(each.pod)
                config = classes.get(group_name or "")
                on = config and config.resctrl_qos and config.resctrl_qos.enable
                if group_name and on and RESCTRL not in _annotations(each):
                    self._join(self._resctrl / group_name / "tasks", each)
        except OSError as error:
            self._say(f"resctrl groups are not as they should be: {error}")

    def _caches(self) -> list[int]:
        for line in (self._resctrl / "schemata").read_text().splitlines():
            kind, _, rest = line.strip().partition(":")
            if kind == "L3":
                return [int(part.partition("=")[0]) for part in rest.split(";") if part]
        return []

    def _schemata(self, file: Path, stated: QosClass | None, mask: str, caches: list[int]) -> None:
        config = stated.resctrl_qos if stated else None
        if config is None:
            return
        end = 100 if config.cat_range_end_percent is None else config.cat_range_end_percent
        ways = resctrl.cache_mask(mask, config.cat_range_start_percent or 0, end)
        share = resctrl.bandwidth(100 if config.mba_percent is None else config.mba_percent, self._vendor())
        current = {line.strip().rstrip(";") for line in file.read_text().splitlines()} if file.exists() else set()
        for line in (
            resctrl.line("L3", f"{ways:x}", caches) if ways else "",
            resctrl.line("MB", str(share), caches) if share and any(one.startswith("MB:") for one in current) else "",
        ):
            if line and line.strip().rstrip(";") not in current:
                file.write_text(line)

    def _vendor(self) -> str:
        for line in (self._roots["proc"] / "cpuinfo").read_text().splitlines():
            name, _, found = line.partition(":")
            if name.strip() == "vendor_id":
                return found.strip()
        return ""

    def _join(self, tasks: Path, each: Placed) -> None:
        there = set(tasks.read_text().split()) if tasks.exists() else set()
        for folder in each.containers.values():
            for pid in self._pids(
                folder, "cgroup.threads" if (self._procs_root / "cgroup.controllers").exists() else "tasks"
            ):
                if str(pid) not in there:
                    try:
                        with tasks.open("a") as file:  # one id a write
                            file.write(str(pid))
                    except OSError:
                        continue  # it has ended

    def _scores(self, pods: Iterable[Placed]) -> None:
        for each in pods:
            annotations = _annotations(each)
            if not annotations.keys() & {oom_score.ANNOTATION, oom_score.SPEC}:
                continue
            for name, cid in each.seen.ids.items():
                score = oom_score.score(annotations, name)
                if score is None:
                    continue
                for pid in self._pids(each.containers[cid], "cgroup.procs"):
                    file = self._roots["proc"] / f"{pid}/oom_score_adj"
                    try:
                        if file.read_text().strip() != str(score):
                            file.write_text(str(score))
                    except OSError as error:
                        self._say(f"the OOM score of pod {each.pod.metadata.key} cannot be set: {error.strerror}")

    def _pids(self, folder: str, file: str) -> list[int]:
        v2 = (self._procs_root / "cgroup.controllers").exists()
        base = self._procs_root if v2 else self._procs_root / "cpu"
        try:
            return sorted(int(pid) for pid in (base / folder / file).read_text().split())
        except (OSError, ValueError):
            return []

    def _say(self, text: str) -> None:
        """A warning, once."""
        if text not in self._said:
            self._said.add(text)
            log.warning(text)


def _annotations(each: Placed) -> Mapping[str, str]:
    return each.pod.metadata.annotations or {}
