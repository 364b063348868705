"""The estimated and the planned start of a waiting gang, for the commands that explain it."""

from collections import Counter
from datetime import UTC, datetime

import msgspec

from cli.terminal.durations import age, second
from services.scheduler.explain.estimated_start import ENOUGH, GangFeatures, TooLittleHistory, estimate
from services.scheduler.explain.gang_status import WAITING, GangStatus
from services.scheduler.explain.impossible_requests import impossible_of
from services.scheduler.plugins.coscheduling.gang_features import classes_of, waited_ns
from services.scheduler.state.scheduler_state import SchedulerState
from shared.first_names import first_names
from shared.kube.instants import SECOND


class StartEstimate(msgspec.Struct, frozen=True):
    """The interval in which a waiting gang is expected to be placed.

    Attributes:
        earliest, latest: its ends, instants; empty where the history is too short for an estimate.
        text: the same in words, or why there is none.
        waited_s: how long the gang has had enough pods.
        similar: gangs that the interval rests on; alike: in what they are like this one.
        checked: gangs of the history by whose intervals it was checked; held: how many of them were placed within.
    """

    earliest: str
    latest: str
    text: str
    waited_s: int
    similar: int = 0
    alike: str = ""
    checked: int = 0
    held: int = 0


def start_estimate(view: SchedulerState, status: GangStatus, now_ns: int) -> StartEstimate | None:
    """Estimates when a gang is placed; None for one that does not wait as a whole, of which a pod was bound before, or of
    which a pod cannot be placed as the cluster is.
    """
    if status.state != WAITING or status.settings is None or status.record.was_bound:
        return None
    if impossible_of(view, (member.record for member in status.members if member.stage == "pending")):
        return None
    waited = waited_ns(view, status.settings.groups, now_ns)
    found = estimate(list(view.gang_waits), _features(view, status), waited)
    if isinstance(found, TooLittleHistory):
        return StartEstimate("", "", _too_little(found, waited), waited // SECOND)
    earliest, latest = (_instant(now_ns + each) for each in (found.earliest_ns, found.latest_ns))
    text = (
        f"between {earliest} and {latest} (in {_age(found.earliest_ns)} to {_age(found.latest_ns)}), by the waits of"
        f" {found.similar} gangs with similar {found.alike}"
    )
    if found.checked:
        text += f"; {found.held} of {found.checked} earlier gangs were placed in the interval computed for them"
    return StartEstimate(
        earliest, latest, text, waited // SECOND, found.similar, found.alike, found.checked, found.held
    )


class PlannedGangStart(msgspec.Struct, frozen=True):
    """The planned start of the unit of a gang, where `backfill` is on.

    Attributes:
        text: in words.
        starts: instant by which the deadlines of the pods end that it waits for; empty where one has none.
        nodes: node -> number of pods of the unit that are planned for it.
        waits_for: pods that have to end first, `namespace/name`.
    """

    text: str
    starts: str
    nodes: dict[str, int]
    waits_for: tuple[str, ...]


def planned_start(view: SchedulerState, status: GangStatus) -> PlannedGangStart | None:
    """Returns the planned start of the unit of a gang; None without one."""
    uids = {member.record.uid for member in status.members}
    for start in view.planned_starts.values():
        if uids.isdisjoint(start.nodes):
            continue
        names = sorted(view.pods[uid].name for uid in start.waits_for if uid in view.pods)
        nodes = dict(sorted(Counter(start.nodes.values()).items()))
        starts = _instant(start.starts_ns) if start.starts_ns else ""
        when = f", by {starts}" if starts else ""
        after = (
            f"once {first_names(names, 3)} {'has' if len(names) == 1 else 'have'} ended"
            if names
            else "as soon as it is tried"
        )
        return PlannedGangStart(f"{after}{when}, on {first_names(list(nodes), 3)}", starts, nodes, tuple(names))
    return None


def _features(view: SchedulerState, status: GangStatus) -> GangFeatures:
    """Returns the features of the pods that the gang still needs."""
    request: Counter[str] = Counter()
    needed = [member.record for member in status.members if member.stage == "pending"][: status.needed]
    for pod in needed:
        if pod.pod_class is not None:
            request.update(pod.pod_class.request)
    return GangFeatures(len(needed), dict(request), *classes_of(view, status.record))


def _too_little(found: TooLittleHistory, waited: int) -> str:
    if found.placed < ENOUGH:
        gangs = "no gang" if not found.placed else "one gang" if found.placed == 1 else f"{found.placed} gangs"
        return f"too little history: the log has the wait of {gangs}, and an estimate needs {ENOUGH}"
    longer = "none" if not found.longer else f"only {found.longer}"
    return (
        f"too little history: of the last {found.placed} gangs {longer} waited longer than this one has up to now"
        f" ({_age(waited)}), and an estimate needs {ENOUGH}"
    )


def _instant(at_ns: int) -> str:
    return second(datetime.fromtimestamp(at_ns // SECOND, UTC))


def _age(ns: int) -> str:
    return age(ns / SECOND)
