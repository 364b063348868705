"""Checks that the objects of quotas are followed as they are written."""

from collections.abc import Iterator, Sequence

from cli.doctor.finding import Finding
from cli.quota.render import QuotaFault
from cli.simulated_cluster import edit_advice

NAMED = 3


def about_rejected_quotas(found: Sequence[QuotaFault], *, simulated: bool = False) -> Iterator[Finding]:
    """Names the quotas whose newest object is rejected, each described in one line."""
    remedy = "correct it: {}; `koord explain pod` shows whether a pod waits for that"
    return _about_quotas(found, remedy, "more rejected quotas", simulated=simulated)


def about_ignored_quota_settings(found: Sequence[QuotaFault], *, simulated: bool = False) -> Iterator[Finding]:
    """Names the quotas of which a label, an annotation or a resource has no effect, each described in one line."""
    return _about_quotas(found, "correct it: {}", "more quotas with settings that have no effect", simulated=simulated)


def _about_quotas(found: Sequence[QuotaFault], remedy: str, others: str, *, simulated: bool) -> Iterator[Finding]:
    """Names the first quotas; `others` describes the rest, which are counted, and named where they are few."""
    for fault in found[:NAMED]:
        # The object of a quota that never was valid is known only where a scheduler has written its log.
        namespace = fault.namespace or "NAMESPACE"
        command = edit_advice(fault.resource, fault.name, namespace, simulated=simulated)
        yield Finding("warning", "configuration", fault.text, remedy.format(command))
    if len(found) > NAMED:
        rest = list(dict.fromkeys(fault.name for fault in found[NAMED:]))
        what = f"{others}: {', '.join(rest) if len(rest) <= NAMED else len(rest)}"
        yield Finding("warning", "configuration", what, "`koord get quotas` names all of them")
