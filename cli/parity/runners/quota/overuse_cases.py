"""The `revoke` and `overuse` cases: the ledger's own decisions on over-use, at the times of the record."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cli.parity.runners.quota.recorded_ledger import RecordedLedger
from shared.domain.amounts import exceeding, nonzero
from shared.events import Event
from shared.events.quota import RevocationDecided
from shared.kube.elastic_quota import RESERVED, ROOT
from shared.kube.instants import SECOND, duration_ns, instant_ns, instant_text

QUOTA = "watched"


def revoke(given: Mapping[str, Any]) -> dict[str, Any]:
    """Lets over-use last for longer than it is tolerated, and returns the victims in each quota."""
    ledger = RecordedLedger.after(given)
    ledger.settings = msgspec.structs.replace(ledger.settings, revoke=True)
    ledger.catch_up()
    ledger.now_ns += int((ledger.settings.revoke_after_s + 1) * SECOND)
    before = len(ledger.recorded)
    ledger.catch_up()
    revoked = _revoked(ledger.recorded[before:])
    quotas = {}
    for tree in ledger.trees.values():
        for info in tree.quotas.values():
            if info.name in (ROOT, *RESERVED):
                continue
            runtime = {name: size for name, size in info.runtime.items() if size or name in info.declared.max}
            quotas[info.name] = {
                "overused": bool(exceeding(info.used, info.runtime)),
                "runtime": runtime,
                "used": nonzero(info.used),
                "revoke": revoked.get(info.name, []),
            }
    return {"quotas": quotas}


def overuse(given: Mapping[str, Any]) -> dict[str, Any]:
    """Looks at one quota at the recorded times; a pod that is too large for it comes and goes.

    A record shows a quota over its runtime only at its next look. The ledger looks each second, so the pod comes right
    after the last look at which nothing was over-used. Before it comes the ledger keeps no clock; the time of the look
    stands for it.
    """
    at_ns = instant_ns(given["start"])
    ledger = RecordedLedger({"args": {}, "featureGates": [], "now": given["start"]})
    delay_s = duration_ns(given["args"].get("delayEvictTime", "120s")) / SECOND
    ledger.settings = msgspec.structs.replace(ledger.settings, revoke=True, revoke_after_s=delay_s)
    ledger.take({"type": "quotaAdd", "quota": {"metadata": {"name": QUOTA}, "spec": {"max": {"cpu": "1"}}}})
    observations = []
    for observed in given["observations"]:
        if observed["overused"]:
            ledger.take({"type": "podAdd", "pod": _TOO_LARGE})
        at_ns = ledger.now_ns = instant_ns(observed["at"])
        before = len(ledger.recorded)
        if observed["overused"]:
            ledger.catch_up()
        else:
            ledger.take({"type": "podDelete", "pod": _TOO_LARGE})
        clock = ledger.state.projection.overuse.get(QUOTA)
        observations.append(
            {
                "trigger": QUOTA in _revoked(ledger.recorded[before:]),
                "lastUnderUsedTime": instant_text(at_ns if clock is None else clock.since_ns),
            }
        )
    return {"observations": observations}


_TOO_LARGE = {
    "metadata": {"name": "large", "namespace": "default", "labels": {"quota.scheduling.koordinator.sh/name": QUOTA}},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
}


def _revoked(events: Sequence[Event]) -> dict[str, list[str]]:
    return {event.quota: list(event.pods) for event in events if isinstance(event, RevocationDecided)}
