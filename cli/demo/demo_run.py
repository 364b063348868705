"""One run of the demo: the services, a simulated cluster, pods that come all at once, and the nodes' reports
afterwards.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cli.demo.run_progress import Progress
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.status_view import View
from cli.supervisor.supervisor import Spec, Supervisor
from shared.errors import KoordError
from shared.log.admin.session import reading

REPORT_INTERVAL_S = 4
START_DELAY_S = 0.5
POLL_INTERVAL_S = 0.25
PLACED_WITHIN_S = 60.0


class Scale(NamedTuple):
    """The size of the simulation; `hot_percent` of the nodes carry load that no pod requested."""

    nodes: int
    pods: int
    hot_percent: int = 20


class Phase(NamedTuple):
    """A phase of a run: its progress line, the condition that ends it, and its time limit."""

    describe: Callable[[Progress], str]
    done: Callable[[Progress], bool]
    limit_s: float


class TooSlow(KoordError):
    """A phase of the demo did not end in time."""


async def run(title: str, scale: Scale, endpoints: Endpoints, folder: Path, *, config: Path | None) -> Progress:
    """Runs the services on an empty log until all pods are placed and all nodes have reported what that did to them.

    Raises:
        TooSlow: a phase took longer than its limit; the text names what was missing.
    """
    specs = [
        Spec("simulator", "simulator", _simulator(scale)),
        Spec("scheduler", "scheduler", {"KOORD_SCHEDULER_CONFIG": str(config)} if config else {}),
    ]
    progress = Progress()
    async with Supervisor(specs, endpoints, folder) as supervisor, reading(endpoints.postgres) as log:
        with View(supervisor.units.values(), title) as view:
            for phase in _phases(scale):
                deadline = time.monotonic() + phase.limit_s
                while not phase.done(progress):
                    if time.monotonic() > deadline:
                        raise TooSlow(
                            f"{phase.describe(progress)}, after {phase.limit_s:g} s; the services' logs are in {folder / 'logs'}"
                        )
                    await progress.read(log)
                    view.update(f"\n{phase.describe(progress)}")
                    await asyncio.sleep(POLL_INTERVAL_S)
                view.note(phase.describe(progress))
    return progress


def _simulator(scale: Scale) -> Mapping[str, str]:
    settings: dict[str, Any] = {
        "nodes": scale.nodes,
        "hot_percent": scale.hot_percent,
        "pods": scale.pods,
        "pods_after_s": REPORT_INTERVAL_S + 2,  # every node has reported by then
        "start_delay_s": START_DELAY_S,
        "report_interval_s": REPORT_INTERVAL_S,
        "average_s": 15,
    }
    return {f"KOORD_SIMULATOR_{name.upper()}": str(value) for name, value in settings.items()}


def _phases(scale: Scale) -> tuple[Phase, ...]:
    def settled(progress: Progress) -> bool:
        """Each node has reported since the last pod runs."""
        since_ns = max(progress.bound_ns.values()) + int((START_DELAY_S + 1) * 1e9)
        return all(load.at_ns > since_ns for load in progress.loads.values())

    return (
        Phase(
            lambda progress: f"{len(progress.loads)} of {scale.nodes} nodes have reported, {len(progress.hot)} run hot",
            lambda progress: len(progress.loads) >= scale.nodes,
            30,
        ),
        Phase(
            lambda progress: (
                f"{len(progress.bound_ns):,} of {scale.pods:,} pods are placed and bound, {len(progress.waiting)} wait"
            ),
            lambda progress: len(progress.bound_ns) >= scale.pods,
            PLACED_WITHIN_S,
        ),
        Phase(lambda _: "pods start, nodes report what they use now", settled, 30),
    )
