"""`koord bench quota`: the ledger's engine alone: runtimes recomputed after one leaf's change, charges posted, one
quota explained.

The tree has four levels and less capacity than is requested, so that one leaf's request moves the shares of the root,
and with them those of thousands of quotas.
"""

import gc
import os
import resource
import tempfile
import time
from pathlib import Path

import click
import msgspec
import uvloop

from cli.bench import quota_charging
from cli.bench.quota_charging import ChargingFigures
from cli.terminal.output import show_table
from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.accounting.verify_invariants_by_replay import holds
from services.quota_ledger.decide.admission import AdmissionRules, shortfall
from services.quota_ledger.explain.explain_runtime import explain
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import negated
from shared.events import Event
from shared.events.quota import CapacitySet, PodAttached, PodCharged, QuotaDeclared
from shared.kube.elastic_quota import ROOT, DeclaredQuota
from shared.runtime.garbage_collection import uncollected

LEVELS = 4
CHANGES = 200
MIB = 1 << 20
DELTA = {"cpu": -700, "memory": -512 * MIB}
ENOUGH = 1_000
"""Quotas that a timed change must at least affect."""


class QuotaFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`.

    Attributes:
        build_ms: all runtimes from nothing.
        recompute_ms_p50, recompute_ms_p99: one leaf's request changes: the sums on its path and every runtime
            that moves.
        recorded_ms: one such change with its RuntimeRecomputed and its postings.
        affected_p50, affected_p99: quotas whose runtime moved.
        charges_per_s: pods checked against their quota and every ancestor, and charged: event, postings, sums.
        explain_ms: the arithmetic of one leaf.
        rss_mib: the process at its largest.
    """

    quotas: int
    pods: int
    build_ms: float
    recompute_ms_p50: float
    recompute_ms_p99: float
    recorded_ms: float
    affected_p50: int
    affected_p99: int
    charges_per_s: float
    explain_ms: float
    rss_mib: float
    load_1m: float


@click.command()
@click.option("--quotas", "quota_count", type=click.IntRange(min=10), default=10_000, show_default=True, help="Quotas.")
@click.option(
    "--pods", "pod_count", type=click.IntRange(min=1), default=20_000, show_default=True, help="Pods to charge."
)
@click.option("--servers", is_flag=True, help="Charge through NATS and Postgres, with the ledger as a process.")
@click.option(
    "--batch", type=click.IntRange(1, 4096), default=256, show_default=True, help="With --servers: pods of a cycle."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def quota(*, quota_count: int, pod_count: int, servers: bool, batch: int, as_json: bool) -> None:
    """Measure the quota ledger: its engine alone, or with --servers what a scheduling cycle waits for."""
    figures: QuotaFigures | ChargingFigures
    if servers:
        with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            folder.chmod(0o755)  # Postgres may run as another user
            figures = uvloop.run(quota_charging.measure(folder, quota_count, pod_count, batch))
    else:
        figures = measure(quota_count, pod_count)
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), msgspec.structs.asdict(figures).items())


def measure(quota_count: int, pod_count: int) -> QuotaFigures:
    """Build the tree, change leaves, charge pods."""
    projection, leaves = build(quota_count)
    tree = projection.trees[""]
    attach(projection, leaves, pod_count)
    alone = QuotaTree()
    copy_into(alone, tree)
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    with uncollected():  # as in the service
        alone.refresh_runtimes()
    build_ms = (time.perf_counter() - started) * 1e3
    took_ms, affected = change(alone, leaves)
    recompute(projection)
    name = moving(alone, leaves)[0]
    started = time.perf_counter()
    tree.add_request(name, DELTA, {})
    recompute(projection)
    recorded_ms = (time.perf_counter() - started) * 1e3
    tree.add_request(name, negated(DELTA), {})
    recompute(projection)
    charges_per_s = charge(projection, pod_count)
    started = time.perf_counter()
    explain(projection, leaves[len(leaves) // 2])
    explain_ms = (time.perf_counter() - started) * 1e3
    broken = [*holds(projection)]
    assert not broken, broken[:3]
    assert len(tree.quotas) >= quota_count, "all quotas are in the tree"
    return QuotaFigures(
        quotas=quota_count,
        pods=pod_count,
        build_ms=round(build_ms, 2),
        recompute_ms_p50=round(_quantile(took_ms, 0.5), 3),
        recompute_ms_p99=round(_quantile(took_ms, 0.99), 3),
        recorded_ms=round(recorded_ms, 3),
        affected_p50=int(_quantile(affected, 0.5)),
        affected_p99=int(_quantile(affected, 0.99)),
        charges_per_s=round(charges_per_s),
        explain_ms=round(explain_ms, 3),
        rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        load_1m=round(os.getloadavg()[0], 2),
    )


def build(count: int) -> tuple[LedgerProjection, list[str]]:
    """A tree of four levels, each parent with about as many children as every other; its leaves."""
    width = max(2, round(count ** (1 / LEVELS)))
    projection, leaves, parents, made = LedgerProjection(), [], [ROOT], 0
    for depth in range(LEVELS):
        last = depth == LEVELS - 1
        size = max(1, (count - made) // len(parents)) if last else width
        extra = count - made - size * len(parents) if last else 0
        made_here = []
        for index, parent in enumerate(parents):
            for number in range(size + (index < extra)):
                name = f"{'q' if parent == ROOT else parent}-{number}"
                made_here.append(name)
                projection.apply(
                    QuotaDeclared(quota=name, declared=_quota(name, parent, width ** (LEVELS - 1 - depth), number))
                )
        parents, made = made_here, made + len(made_here)
    leaves = parents
    projection.apply(CapacitySet(tree="", total={"cpu": 3_900 * len(leaves), "memory": 3_900 * MIB * len(leaves)}))
    for index, name in enumerate(leaves):
        request = {"cpu": 4_000 + index % 7 * 100, "memory": (4_096 + index % 11 * 64) * MIB}
        projection.apply(PodAttached(pod_uid=f"base-{name}", pod=f"base/{name}", quota=name, request=request))
    return projection, leaves


def attach(projection: LedgerProjection, leaves: list[str], count: int) -> None:
    """Pods that wait, small enough that every leaf has room for its own."""
    each = -(-count // len(leaves))
    for number in range(count):
        uid, name = f"pod-{number}", leaves[number % len(leaves)]
        request = {"cpu": 400 // each or 1, "memory": 256 * MIB // each}
        projection.apply(PodAttached(pod_uid=uid, pod=f"team/{uid}", quota=name, request=request))


def recompute(projection: LedgerProjection) -> int:
    """Runtimes that moved, as the event that records them, folded."""
    event = projection.trees[""].compute_delta().event("")
    projection.apply(event)
    return len({name for sizes in event.runtimes.values() for name in sizes})


def copy_into(alone: QuotaTree, tree: QuotaTree) -> None:
    """Copies quotas and requests into another tree, without postings."""
    for info in tree.quotas.values():
        if info.name != ROOT:
            alone.add_quota(info.declared)
            alone.add_request(info.name, info.self_request, info.self_np_request)
    alone.set_total(tree.total)


def moving(tree: QuotaTree, leaves: list[str]) -> list[str]:
    """Leaves whose request moves the root's shares: every quota above them gets its whole request."""
    return [
        name
        for name in leaves
        if all(info.runtime.get("cpu") == (info.demand or {}).get("cpu") for info in tree.path(name)[1:-1])
        and (tree.quotas[name].demand or {}) == tree.quotas[name].request
    ]


def change(tree: QuotaTree, leaves: list[str]) -> tuple[list[float], list[float]]:
    """The request of one leaf after the other changes, and changes back: milliseconds, quotas affected."""
    took, affected = [], []
    candidates = moving(tree, leaves)
    assert candidates, "a leaf's request moves the root's shares"
    for number in range(CHANGES):
        name = candidates[number * 7919 % len(candidates)]
        for delta in (DELTA, negated(DELTA)):
            started = time.perf_counter()
            tree.add_request(name, delta, {})
            count = tree.refresh_runtimes()
            took.append((time.perf_counter() - started) * 1e3)
            affected.append(float(count))
    assert _quantile(affected, 0.99) >= min(ENOUGH, len(tree.quotas) / 20), affected
    return took, affected


def charge(projection: LedgerProjection, count: int) -> float:
    """Check and charge every pod, one event each: pods a second."""
    tree, rules = projection.trees[""], AdmissionRules(parents=True)
    charged = 0
    started = time.perf_counter()
    for number in range(count):
        uid = f"pod-{number}"
        entry = projection.table.entries[uid]
        pod = entry.attached
        assert pod is not None, "every pod is attached"
        if shortfall(tree, pod.quota, pod.request, preemptible=pod.preemptible, rules=rules) is None:
            event: Event = PodCharged(pod_uid=uid, pod=entry.name, quota=pod.quota, request=pod.request, cycle=1)
            projection.apply(event)
            charged += 1
    took = time.perf_counter() - started
    assert charged == count, f"{count - charged} pods found no room"
    return count / took


def _quota(name: str, parent: str, share: int, number: int) -> DeclaredQuota:
    limit = {"cpu": 10_000 * share, "memory": 10 * 1024 * MIB * share}
    return DeclaredQuota(
        name=name,
        parent=parent,
        is_parent=True,
        lends=number % 5 != 4,
        min={"cpu": 2_000 * share, "memory": 2 * 1024 * MIB * share},
        max=limit,
        weight={"cpu": (5_000 + number * 500) * share, "memory": (5 + number) * 1024 * MIB * share},
    )


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
