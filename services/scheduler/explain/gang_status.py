"""The state of a gang: how many of its pods there are, are placed and bound, and what it lacks.

A function of the State and of the rules in force, for commands that read the log.
"""

from collections.abc import Iterator
from typing import NamedTuple

from services.scheduler.explain.waiting_order_config import QueueRules
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.coscheduling import SPEC as COSCHEDULING
from services.scheduler.plugins.coscheduling.args import CoschedulingArgs
from services.scheduler.plugins.coscheduling.gang_placement_units import GangGrouping
from services.scheduler.state.gang_records import GangRecord
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import POD_GROUPS
from shared.domain.gang import TOPOLOGY, GangSettings
from shared.domain.ignored_gang_annotations import ignored_of_pod, ignored_of_pod_group
from shared.domain.network_topology import read_gather

SATISFIED, INCOMPLETE, WAITING, UNKNOWN, IGNORED = "satisfied", "incomplete", "waiting", "unknown", "ignored"


class MemberStatus(NamedTuple):
    """A pod of a gang.

    Attributes:
        stage: `bound`, `placed`, `pending`, or empty for a pod that counts in none: gated, ended, of another scheduler.
        node: where it is, or is to be; empty without one.
    """

    record: PodRecord
    stage: str
    node: str


class GangStatus(NamedTuple):
    """The state of a gang.

    Attributes:
        settings: None while it has no readable minimum.
        match_policy: the one in force.
        state: `satisfied`, `waiting` (it is tried as a whole), `incomplete` (it lacks pods, or its group does),
            `unknown` without settings, or `ignored`: the profile of its pods groups none, they are placed one by one.
        lacks: why it is not tried as a whole: text of the missing pods or plugin; empty where it is.
        needed: how many more of its pods have to be placed.
    """

    name: str
    record: GangRecord
    settings: GangSettings | None
    match_policy: str
    state: str
    lacks: str
    needed: int
    members: tuple[MemberStatus, ...]

    def count(self, stage: str) -> int:
        """Returns the number of members of a stage."""
        return sum(member.stage == stage for member in self.members)


def gang_status(view: SchedulerState, rules: QueueRules, gang: str) -> GangStatus | None:
    """Returns the state of a gang by its id, `namespace/name`; None where no pod and no PodGroup has it."""
    record = view.gangs.gangs.get(gang)
    if record is None:
        return None
    settings = record.settings
    there = dict.fromkeys((gang, *(settings.groups if settings is not None else ())))
    grouping = GangGrouping.counted(view, _args_of(view, rules, record), there)
    members = tuple(_members(view, grouping, record))
    if settings is None:
        return GangStatus(gang, record, None, "", UNKNOWN, "", 0, members)
    policy = grouping.policy(record)
    if ignoring := profile_without_gangs(view, rules, record):
        lacks = f"profile {ignoring} does not enable {COSCHEDULING.name}"
        return GangStatus(gang, record, settings, policy, IGNORED, lacks, 0, members)
    lacks = "; ".join(grouping.missing(settings.groups))
    if grouping.is_satisfied_for_good(gang):
        return GangStatus(gang, record, settings, policy, SATISFIED, "", 0, members)
    if lacks:
        return GangStatus(gang, record, settings, policy, INCOMPLETE, lacks, 0, members)
    needed = grouping.needed(settings.groups)
    if not any(needed.values()):
        return GangStatus(gang, record, settings, policy, SATISFIED, "", 0, members)
    held_back = _held_back(grouping, members)
    state = INCOMPLETE if held_back is not None else WAITING
    return GangStatus(
        gang, record, settings, policy, state, held_back.detail if held_back else "", needed[gang], members
    )


def profile_without_gangs(view: SchedulerState, rules: QueueRules, record: GangRecord) -> str:
    """Returns the profile of the gang's pods where it has no gangs; empty for one that has, and without a pod."""
    for uid in sorted(record.members):
        pod_class = view.pods[uid].pod_class
        if pod_class is not None and pod_class.scheduler in rules.schedulers:
            return pod_class.scheduler if rules.schedulers[pod_class.scheduler] is None else ""
    return ""


def ignored_settings(view: SchedulerState, rules: QueueRules, gang: str) -> tuple[str, ...]:
    """Returns the settings that the PodGroup of a gang, or else its pods, have and that are ignored, in words."""
    record = view.gangs.gangs[gang]
    if record.has_pod_group:
        found = dict.fromkeys(ignored_of_pod_group(view.objects.get(POD_GROUPS, {}).get(gang, {})))
    else:
        classes = (view.pods[uid].pod_class for uid in sorted(record.members))
        found = {
            fault: None
            for each in classes
            if each is not None
            for fault in ignored_of_pod(each.labels, each.pod.metadata.annotations)
        }
    settings = record.settings
    if settings is not None and read_gather(settings.topology) and not _args_of(view, rules, record).gathers:
        found[f"annotation {TOPOLOGY}: no profile of its pods sets awareNetworkTopology of {COSCHEDULING.name}"] = None
    return tuple(found)


def _held_back(grouping: GangGrouping, members: tuple[MemberStatus, ...]) -> Reason | None:
    return grouping.of(members[0].record).held_back if members else None


def _args_of(view: SchedulerState, rules: QueueRules, record: GangRecord) -> CoschedulingArgs:
    """Returns the arguments of the profile of its first pod; the default ones without a pod or a profile."""
    for uid in sorted(record.members):
        pod_class = view.pods[uid].pod_class
        args = rules.schedulers.get(pod_class.scheduler) if pod_class is not None else None
        if args is not None:
            return args
    return CoschedulingArgs()


def _members(view: SchedulerState, grouping: GangGrouping, record: GangRecord) -> Iterator[MemberStatus]:
    """Yields the pods of a gang by name."""
    there = [(view.pods[uid], member) for uid, member in record.members.items()]
    for pod, member in sorted(there, key=lambda each: (each[0].name, each[0].uid)):
        stage = grouping.stage(pod.uid, member)
        yield MemberStatus(pod, stage, pod.node or (pod.placed_node if stage == "placed" else ""))
