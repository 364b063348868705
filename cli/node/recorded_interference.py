"""Recorded interference of pods: what deviated and by how much, the suspects, what was done, and how it ended."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from cli.terminal.amounts import human_amount
from cli.terminal.durations import instant_of
from shared.events import RecordedEvent
from shared.events.nodes import InterferenceSuspect, PodInterfered, PodInterferenceEnded

UNITS = {
    "cpi": ("cycles an instruction", 1),
    "cpuPressure": ("% of the time waiting for cpu", 1),
    "schedulingLatency": ("ms a time slice waiting for a CPU", 1000),
    "memoryPressure": ("% of the time waiting for memory", 1),
    "refaults": ("pages a second read back", 1),
    "directReclaim": ("pages a second reclaimed in place", 1),
    "ioPressure": ("% of the time waiting for disks", 1),
    "diskLatency": ("ms an I/O", 1000),
    "retransmits": ("of 1000 segments sent again", 1),
    "drops": ("packets dropped a second", 1),
}
"""Signal -> unit in sentences, and how many of the recorded unit it is."""

ENDS = {
    "recovered": "it has recovered",
    "gone": "the pod is gone",
    "disabled": "the detection was switched off",
}


class Interference(msgspec.Struct, frozen=True):
    """One time for which a pod was slowed down.

    Attributes:
        event: PodInterfered, as `context/seq`. since, until: instants; until is empty while it lasts.
        ended: reason of the end; empty while it lasts.
        deviations: what deviated, and by how much. suspects: the most correlated first.
        answer: of the strategy. done: what was done. job: the PodMigrationJob; empty for none.
    """

    pod: str
    event: str
    since: str
    until: str
    ended: str
    deviations: tuple[str, ...]
    suspects: tuple[str, ...]
    answer: str
    done: str
    job: str


def interference_of(records: Iterable[RecordedEvent], pod_uid: str) -> list[Interference]:
    """Returns the interference of a pod, oldest first.

    Args:
        records: actions of its node's agent, oldest first.
    """
    found: list[Interference] = []
    for record in records:
        match record.event:
            case PodInterfered(pod_uid=uid) as event if uid == pod_uid:
                found.append(_begun(record, event))
            case PodInterferenceEnded(pod_uid=uid, reason=reason, at_ns=at_ns) if uid == pod_uid and found:
                if not found[-1].until:
                    ended = ENDS.get(reason, reason)
                    found[-1] = msgspec.structs.replace(found[-1], until=instant_of(at_ns), ended=ended)
    return found


def suspected_of(records: Iterable[RecordedEvent], pod_uid: str) -> Iterator[str]:
    """Yields how a pod is suspected to slow down others."""
    for record in records:
        if isinstance(record.event, PodInterfered):
            for each in record.event.suspects:
                if each.pod_uid == pod_uid:
                    slowed = record.event.pod or f"pod {record.event.pod_uid}"
                    yield (
                        f"it is suspected of having slowed down {slowed} since {instant_of(record.event.since_ns)} "
                        f"({record.context}/{record.seq}): {_correlation(each)}"
                    )


def interference_findings(found: Sequence[Interference]) -> Iterator[str]:
    """Yields sentences about the newest interference of a pod."""
    if not found:
        return
    last = found[-1]
    verb = "was" if last.until else "is"
    until = f" until {last.until}: {last.ended}" if last.until else ""
    yield f"it {verb} slowed down by best-effort neighbours since {last.since} ({last.event}){until}"
    yield from (f"deviates: {each}" for each in last.deviations)
    yield from (f"suspect: {each}" for each in last.suspects)
    yield f"answer: {done_text(last.answer, last.done, last.job)}"


def done_text(answer: str, done: str, job: str) -> str:
    """Returns what was done about an interference."""
    if job:
        return f"PodMigrationJob {job} was requested (`koord why eviction {job}`)"
    if done:
        return done
    if answer == "suppress":
        return "nothing: best effort is not suppressed on this node (resource-threshold-config)"
    return "nothing, by the strategy (`answer` of interference-config)"


def interference_text(event: PodInterfered | PodInterferenceEnded, whose: str) -> str:
    """Returns an event as a sentence.

    Args:
        whose: name of the pod, or `the pod`.
    """
    if isinstance(event, PodInterferenceEnded):
        return f"{whose} is no longer slowed down: {ENDS.get(event.reason, event.reason)}"
    suspect = event.suspects[0] if event.suspects else None
    by = f" by {_name(suspect)} ({_correlation(suspect)})" if suspect is not None else ""
    signals = ", ".join(each.signal for each in event.deviations)
    return f"{whose} is slowed down{by}: {signals}; {done_text(event.answer, event.done, event.job)}"


def _begun(record: RecordedEvent, event: PodInterfered) -> Interference:
    return Interference(
        pod=event.pod,
        event=f"{record.context}/{record.seq}",
        since=instant_of(event.since_ns),
        until="",
        ended="",
        deviations=tuple(map(_deviation, event.deviations)),
        suspects=tuple(f"{_name(each)}: {_correlation(each)}" for each in event.suspects),
        answer=event.answer,
        done=event.done,
        job=event.job,
    )


def _deviation(each: Any) -> str:
    unit, scale = UNITS.get(each.signal, ("", 1))
    value, usual = each.value / scale, each.baseline / scale
    times = f"{each.value / each.baseline:.1f} times the usual" if each.baseline > 0 else "usually"
    return f"{each.signal}: {value:.4g} {unit}, {times} {usual:.4g}; the limit is {each.limit / scale:.4g}"


def _name(suspect: InterferenceSuspect) -> str:
    return suspect.pod or f"pod {suspect.pod_uid}"


def _correlation(each: InterferenceSuspect) -> str:
    second = "" if each.activity in {"cpu", "memory"} else " a second"
    amount = human_amount("cpu" if each.activity == "cpu" else "memory", round(each.value))
    return f"its {each.activity} ({amount}{second}) is correlated with {each.signal} by {each.correlation_percent} %"
