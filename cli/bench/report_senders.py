"""The reporting agents of a fleet, as a process of their own: for `koord bench ingest`."""

import asyncio
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from cli.bench.process_costs import obey
from shared.agents import receipt, subjects
from shared.agents.report import PodSum, Report, Series, encode
from shared.bus import Bus
from shared.errors import KoordError
from shared.kube.instants import SECOND

INTERVAL_S = 60
LONG_S = 1_500
"""The first report of each node is of 25 minutes, so that its windows are almost full."""
ANSWERED_S = 900.0
"""The first report is answered when ingest has read a million pods."""
AT_ONCE = 128
"""Requests without a reply, at most."""
MIB = 1024 * 1024


def node_name(number: int) -> str:
    """Returns the name of a node; they are numbered from 0."""
    return f"node-{number:05}.rack-{number // 40:03}"


def pod_uid(node: int, pod: int) -> str:
    """Returns the uid of a pod of a node."""
    return f"{node:08x}-{pod:04x}-4000-8000-{node * 1_000 + pod:012x}"


def send(pipe: Connection, nats: str, nodes: int, pods: int, minutes: int) -> None:
    """Acts as the agents of all nodes, on commands from the pipe, until None comes.

    `("flood", rounds)`: so many reports of each node, as fast as they are answered; `("steady", seconds)`: one of each
    node every INTERVAL_S. The reply to each is (seconds taken, bytes of a report, (node, at_ns) -> time of sending, of
    a steady one).

    Args:
        minutes: number of minutes before now at which reports begin.
    """
    uvloop.run(_Sender(pipe, nodes, pods, minutes).run(nats))


def reports_due(nodes: int, seconds: float) -> int:
    """Returns the number of reports within `seconds` of nodes of which each reports every INTERVAL_S."""
    return int(seconds * nodes / INTERVAL_S)


class _Sender:
    """Agents of all nodes. Each report is the next minute of its node, up to now."""

    def __init__(self, pipe: Connection, nodes: int, pods: int, minutes: int) -> None:
        self._pipe = pipe
        self._nodes = nodes
        self._minutes = 0
        self._began_ns = time.time_ns() - minutes * INTERVAL_S * SECOND
        self._bytes = 0
        self._reports = [_Reports(number, pods) for number in range(nodes)]
        self._bus: Bus

    async def run(self, nats: str) -> None:
        """Runs commands until None comes."""
        self._bus = Bus(nats, name="bench agents")
        await self._bus.start()
        await obey(self._pipe, self._work)
        await self._bus.close()

    async def _work(self, kind: str, amount: float) -> Any:
        return await (self._flood(int(amount)) if kind == "flood" else self._steady(amount))

    async def _flood(self, rounds: int) -> tuple[float, int, dict[tuple[str, int], float]]:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for first in range(min(AT_ONCE, self._nodes)):
                group.create_task(self._some(range(first, self._nodes, AT_ONCE), rounds))
        self._minutes += rounds
        return time.monotonic() - began, self._bytes, {}

    async def _some(self, numbers: range, rounds: int) -> None:
        for minute in range(self._minutes, self._minutes + rounds):
            for number in numbers:
                await self._send(number, self._began_ns + minute * INTERVAL_S * SECOND)

    async def _steady(self, seconds: float) -> tuple[float, int, dict[tuple[str, int], float]]:
        sent: dict[tuple[str, int], float] = {}
        pause_s = INTERVAL_S / self._nodes
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for turn in range(reports_due(self._nodes, seconds)):
                await asyncio.sleep(max(0.0, began + turn * pause_s - time.monotonic()))
                at_ns, number = time.time_ns(), turn % self._nodes
                sent[node_name(number), at_ns] = time.monotonic()
                group.create_task(self._send(number, at_ns))
        return time.monotonic() - began, self._bytes, sent

    async def _send(self, number: int, at_ns: int) -> None:
        report = self._reports[number].next(at_ns)
        data = encode(report)
        self._bytes = len(data)
        reply = receipt.decode(
            await self._bus.request(subjects.subject(report.node, subjects.REPORT), data, deadline_s=ANSWERED_S)
        )
        if not reply.accepted:
            raise KoordError(reply.refused)


class _Reports:
    """The reports of one node: a minute of samples each second, and its pods' sums."""

    def __init__(self, number: int, pods: int) -> None:
        self._number = number
        self._node = node_name(number)
        self._seqs = iter(range(1, sys.maxsize))
        self._series = self._of(INTERVAL_S)
        self._pods = tuple(
            PodSum(pod_uid(number, pod), 60 * (50_000 + pod * 997), 60, 50_000, 60 * (pod + 64) * MIB, 60, MIB)
            for pod in range(pods)
        )

    def next(self, at_ns: int) -> Report:
        """Returns the report of the minute that ends at an instant; the first is longer."""
        seq = next(self._seqs)
        seconds, series = (LONG_S, self._of(LONG_S)) if seq == 1 else (INTERVAL_S, self._series)
        node, system, best_effort = series
        return Report(
            node=self._node,
            boot="bench",
            seq=seq,
            at_ns=at_ns,
            interval_ns=seconds * SECOND,
            node_usage=node,
            system_usage=system,
            best_effort_usage=best_effort,
            pods=self._pods,
        )

    def _of(self, seconds: int) -> tuple[Series, ...]:
        """Returns a sample each second, of the node, of the system, of best effort."""
        offsets = tuple(range(1_000, seconds * 1_000 + 1, 1_000))
        return tuple(
            Series(
                offsets,
                tuple(_wave(self._number + shift, scale, seconds)),
                tuple(_wave(self._number + shift, scale * 1_000, seconds)),
            )
            for shift, scale in ((0, 8_000_000), (17, 1_000_000), (31, 3_000_000))
        )


def _wave(seed: int, scale: int, seconds: int) -> Iterator[int]:
    """Yields some samples around `scale`."""
    return (scale + (seed * 7_919 + second * 104_729) % scale for second in range(seconds))
