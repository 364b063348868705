"""Victims of over-use as upstream chooses them. Source: spec/quota.md 6.4."""

from collections.abc import Mapping, Sequence
from typing import Any

from cli.parity.upstream.quota.pod_events import Booked
from cli.parity.upstream.quota.quirks import Quirk, Quirks
from cli.parity.upstream.quota.quota_info import QuotaInfo
from cli.parity.upstream.quota.quota_plugin import QuotaPlugin
from services.quota_ledger.pods.pod_request import is_preemptible
from shared.domain.amounts import Amounts, add, exceeding, mask, nonzero, sub
from shared.kube.elastic_quota import RESERVED, ROOT
from shared.kube.instants import instant_ns
from shared.kube.pod import Pod


def revoke(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Returns, per quota, whether it is over-used and the pods that are revoked."""
    scheduler = QuotaPlugin.after(given, quirks)
    quotas = {}
    for name, tree in scheduler.trees.items():
        for info in tree.quotas.values():
            if info.name in (ROOT, *RESERVED):
                continue
            quotas[info.name] = {
                "overused": bool(exceeding(info.used, info.runtime)),
                "runtime": {key: size for key, size in info.runtime.items() if size or key in info.declared.max},
                "used": nonzero(info.used),
                "revoke": _victims(scheduler, info, scheduler.pods.of(name, info.name)),
            }
    return {"quotas": quotas}


def _victims(scheduler: QuotaPlugin, info: QuotaInfo, booked: Mapping[str, Booked]) -> list[str]:
    """Takes the least important pods until the quota is within its runtime, and gives back those that need not go."""
    quirks, limit, rest = scheduler.quirks, info.runtime, info.used
    pods: list[Pod] = []
    for each in booked.values():
        pod = (each.first if Quirk.FIRST_SEEN in quirks else each.latest).pod
        if not each.assigned:
            continue
        if pod.metadata.deletion_timestamp and Quirk.REVOKES_LEAVING not in quirks:
            rest = sub(rest, each.vector)
        else:
            pods.append(pod)
    taken: list[Pod] = []
    for pod in _least_important_first(scheduler, pods):
        if not exceeding(rest, limit):
            break
        if is_preemptible(pod):
            rest = _kept(quirks, sub(rest, scheduler.request(pod)), scheduler.request(pod))
            taken.append(pod)
    if exceeding(rest, limit):
        return [pod.metadata.key for pod in taken]
    gone = []
    for pod in reversed(taken):
        request = scheduler.request(pod)
        rest = _kept(quirks, add(rest, request), request)
        if exceeding(rest, limit):
            rest = sub(rest, request)
            gone.append(pod.metadata.key)
    return gone


def _least_important_first(scheduler: QuotaPlugin, pods: Sequence[Pod]) -> list[Pod]:
    def importance(pod: Pod) -> tuple[int, int, str]:
        return pod.spec.priority or 0, -started_ns(scheduler, pod), pod.metadata.key

    return sorted(pods, key=importance)


def started_ns(scheduler: QuotaPlugin, pod: Pod) -> int:
    """Returns when a pod started, in nanoseconds; the present for one that has not."""
    return instant_ns(pod.status.start_time) if pod.status.start_time else scheduler.now_ns


def _kept(quirks: Quirks, rest: Amounts, request: Amounts) -> Amounts:
    return mask(rest, request) if Quirk.MASKED_VICTIMS in quirks else rest
