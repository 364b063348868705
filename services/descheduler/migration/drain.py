"""The drain of a node: it is cordoned, and its pods move one after the other by PodMigrationJobs, within the limits of
their workloads, until none is left that may move.

A drain is a list of what is due at each instant, like every other decision: a restart goes on with it.

Source: spec/descheduler.md 3.13: upstream has none; filters and limits are those of MigrationController.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.filter_chain import FilterChain, filter_for_plugins
from services.descheduler.migration.gang_minimum import gang_without_spare
from services.descheduler.migration.gang_unit import moves_as_unit
from services.descheduler.migration.migration_state import Drain, MigrationState
from services.descheduler.migration.pod_migration_job import (
    CREATED_BY,
    CREATOR,
    DRAIN,
    EVICT_REASON,
    EVICT_TRIGGER,
)
from services.descheduler.migration.rate_limits import RateLimits
from shared.domain.gang import gang_of
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.migration import DrainEnded
from shared.kube.instants import duration_text
from shared.kube.pod import Pod
from shared.kube.resource_names import CORDON, MIGRATION_JOBS

TRIGGER = "drain"
"""What the jobs of drains name as their trigger."""

TRIES = 3
"""Jobs that may fail for one pod before the drain leaves it."""


class DrainStep(StrEnum):
    """The step of a drain for one pod."""

    MOVES = "moves"
    NEXT = "next"
    WAITS = "waits"
    STAYS = "stays"


class Planned(NamedTuple):
    """A pod of the node.

    Attributes:
        reason: why it waits or stays; the job that moves it, and why that waits before the eviction.
    """

    pod: Pod
    step: DrainStep
    reason: str = ""


def drain_plan(
    state: MigrationState, facts: ClusterFacts, args: MigrationArgs, limits: RateLimits, node: str
) -> list[Planned]:
    """Returns what a drain does with each pod of a node, by name: those that it would move now, that wait, that stay."""
    chain = filter_for_plugins(facts, args)
    plan = [_planned(state, chain, limits, pod) for pod in facts.pods.on_node(node)]
    gangs = dict.fromkeys(gang for each in plan if (gang := gang_without_spare(facts, each.pod)))
    for gang in gangs:
        plan = _as_unit(plan, gang)
    return plan


def _as_unit(plan: list[Planned], gang: str) -> list[Planned]:
    """Returns a plan in which the members of a gang that cannot spare one stay, or wait, together."""
    members = [each for each in plan if gang_of(each.pod.metadata) == gang]
    for step in (DrainStep.STAYS, DrainStep.WAITS):
        first = next((each for each in members if each.step is step), None)
        if first is not None:
            reason = f"{moves_as_unit(f'gang {gang}')}: {first.pod.metadata.key} {step}: {first.reason}"
            later = (DrainStep.NEXT, DrainStep.WAITS)
            return [
                Planned(each.pod, step, reason)
                if each in members and each is not first and each.step in later
                else each
                for each in plan
            ]
    return plan


def _planned(state: MigrationState, chain: FilterChain, limits: RateLimits, pod: Pod) -> Planned:
    uid = pod.metadata.uid
    if (job := chain.existing_job(pod)) or uid in state.drain_jobs_in_creation():
        waits = "" if state.eviction(uid) is not None else limits.object_wait(pod)
        return Planned(pod, DrainStep.MOVES, f"{job}, and waits: {waits}" if job and waits else job)
    if pod.metadata.deletion_timestamp:
        return Planned(pod, DrainStep.MOVES, "it is terminating")
    if reason := chain.non_retryable(pod) or chain.scheduler(pod):
        return Planned(pod, DrainStep.STAYS, reason)
    failed = state.failed_drain_jobs(uid)
    if len(failed) >= TRIES:
        return Planned(pod, DrainStep.STAYS, f"{len(failed)} jobs failed, the last one: {failed[-1]}")
    if reason := chain.retryable(pod) or limits.object_wait(pod):
        return Planned(pod, DrainStep.WAITS, reason)
    return Planned(pod, DrainStep.NEXT)


def drain_drafts(
    state: MigrationState, facts: ClusterFacts, args: MigrationArgs, limits: RateLimits, cordoned: dict[str, bool]
) -> Iterator[Draft]:
    """Yields the next step of each drain.

    Args:
        cordoned: node -> whether it is unschedulable, of all nodes that exist.
    """
    for node, drain in sorted(state.drains.items()):
        if node not in cordoned:
            yield Draft(drain_ended(state, node, {}))
            continue
        if not cordoned[node]:
            if not drain.cordons:
                yield Draft(_cordon_desired(node, {"spec": {"unschedulable": True}}))
            continue
        plan = drain_plan(state, facts, args, limits, node)
        is_moving = any(job.node == node for job in state.drain_jobs.values())
        if not is_moving and all(each.step is DrainStep.STAYS for each in plan):
            remaining = {each.pod.metadata.key: each.reason for each in plan}
            yield Draft(drain_ended(state, node, remaining))
        elif not state.drain_jobs_in_creation():
            # One at a time, or the members of one gang: each counts for the limits of the next.
            following = [each.pod for each in plan if each.step is DrainStep.NEXT]
            if following:
                gang = gang_without_spare(facts, following[0])
                for pod in following if gang else following[:1]:
                    if gang_of(pod.metadata) == gang or not gang:
                        yield Draft(_job(state, args, node, drain, pod))
                return


def cordon_withdrawn(node: str) -> FieldsDesired:
    """Returns the desired state that replaces a cordon which was not written yet: it desires nothing of the node, so that
    it neither cordons it nor ends a cordon that an operator began meanwhile.
    """
    return _cordon_desired(node, {})


def _cordon_desired(node: str, patch: dict[str, Any]) -> FieldsDesired:
    return FieldsDesired(resource="nodes", name=node, fields=CORDON, patch=patch)


def drain_ended(
    state: MigrationState,
    node: str,
    remaining: dict[str, str],
    *,
    by: str = "",
    moving: tuple[str, ...] = (),
    not_cordoned: bool = False,
) -> DrainEnded:
    """Returns the end of the drain of a node, with what its jobs have done; see `DrainEnded`."""
    return DrainEnded(
        node=node,
        moved=state.moved(node),
        remaining=remaining,
        by=by,
        evicted=state.evicted_without_successor(node),
        moving=moving,
        not_cordoned=not_cordoned,
    )


def _job(state: MigrationState, args: MigrationArgs, node: str, drain: Drain, pod: Pod) -> ObjectDesired:
    """Returns the job that moves a pod off the node."""
    metadata = pod.metadata
    number = len(state.failed_drain_jobs(metadata.uid)) + 1
    reason = f"drain of node {node} by {drain.by}" + (f": {drain.reason}" if drain.reason else "")
    spec: dict[str, Any] = {
        "mode": args.default_mode,
        "podRef": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
    }
    if args.default_ttl_ns:
        spec["ttl"] = duration_text(args.default_ttl_ns)
    if args.grace_period_s is not None:
        spec["deleteOptions"] = {"gracePeriodSeconds": args.grace_period_s}
    annotations = {EVICT_REASON: reason, EVICT_TRIGGER: TRIGGER, CREATED_BY: CREATOR}
    return ObjectDesired(
        resource=MIGRATION_JOBS,
        name=f"drain-{drain.seq}-{metadata.uid}-{number}",
        body={"metadata": {"annotations": annotations, "labels": {DRAIN: node}}, "spec": spec},
    )
