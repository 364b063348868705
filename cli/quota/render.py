"""Quotas as text."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cli.terminal.amounts import UNLIMITED, exact_amount, human_amount, human_amounts
from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.explain.explain_runtime import (
    ChildShare,
    ExplainedPod,
    LevelShares,
    RuntimeExplanation,
    ShortResource,
)
from services.quota_ledger.explain.quota_overview import OverviewRow
from services.quota_ledger.explain.quota_shortfall_of_pod import PodExplanation
from shared.domain.amounts import nonzero, sub
from shared.kube.quota_resources import faults_of
from shared.kube.resource_names import QUOTAS

BAR = 20


class QuotaFault(NamedTuple):
    """A quota's object that is rejected, or of which a label or an annotation is ignored, in one line.

    Attributes:
        resource, namespace, name: of the object; the namespace is empty where the log does not have it.
    """

    text: str
    name: str
    namespace: str = ""
    resource: str = QUOTAS


def amount(resource: str, size: int | None) -> str:
    """An amount for people; `-` where there is none."""
    return "-" if size is None else human_amount(resource, size)


AMOUNTS = ("min", "max", "runtime", "used", "borrowed", "lent", "waiting")
COLUMNS = ("quota", "resource", *AMOUNTS)

USED, OVER, FREE, BEYOND = "█", "▓", "▒", "·"
STYLES = {USED: "green", OVER: "bold red", FREE: "cyan", BEYOND: "dim"}
LEGEND = f"{USED} used  {OVER} used beyond the runtime  {FREE} free of the runtime  {BEYOND} up to max"


def rows(lines: Iterable[OverviewRow]) -> Iterator[tuple[str, ...]]:
    """The table of `koord get quotas`."""
    for line in lines:
        sizes = (line.min, line.max, line.runtime, line.used, line.borrowed, line.lent, line.waiting)
        yield name(line), line.resource, *(amount(line.resource, size) for size in sizes)


def name(line: OverviewRow) -> str:
    """The name of a line: of a quota, indented by its depth, or of the tree whose sums it has."""
    return "  " * line.depth + line.quota if line.depth else f"tree {line.tree}" if line.tree else "default tree"


def rejected(projection: LedgerProjection, objects: Mapping[str, Sequence[str]] | None = None) -> Iterator[QuotaFault]:
    """Yields each rejected object, with the reason.

    Args:
        objects: name -> keys of the observed ElasticQuotas of that name. The ledger's log names the object of a quota
            only where it was valid once.
    """
    declared = projection.lookup.quotas
    for name in sorted(projection.rejected):
        others = projection.duplicates.get(name, {})
        own = [key for key in (objects or {}).get(name, ()) if key not in others]
        namespace, resource = declared[name].namespace if name in declared else "", QUOTAS
        if len(own) == 1:
            resource, namespace, _ = own[0].split("/")
        yield from (QuotaFault(text, name, namespace, resource) for text in _rejection_of(projection, name))
    for quota, duplicates in sorted(projection.duplicates.items()):
        for key, reason in sorted(duplicates.items()):
            resource, _, place = key.partition("/")
            text = f"ElasticQuota {place} is rejected: {reason}"
            yield QuotaFault(text, quota, place.partition("/")[0], resource)


def _rejection_of(projection: LedgerProjection, name: str) -> Iterator[str]:
    """A line for the object that has the name of a quota, where it is rejected."""
    if name in projection.rejected:
        force = "its last valid declaration stays in force" if name in projection.tree_of else "its pods wait"
        reason = projection.rejected[name].removeprefix(
            f"quota {name}: "
        )  # begins with the name, as the webhook's message
        yield f"Quota {name} is rejected, and {force}: {reason}"


def ignored(projection: LedgerProjection) -> Iterator[QuotaFault]:
    """Yields each quota of which a label, an annotation or a resource has no effect, with what it should be."""
    for name, quota in sorted(projection.lookup.quotas.items()):
        yield from (QuotaFault(f"Quota {name}: {fault}", name, quota.namespace) for fault in faults_of(quota))


def notes_about(projection: LedgerProjection, name: str) -> Iterator[str]:
    """A line for each object of a quota's name that is rejected, its own first, and for each label, annotation and
    resource of the quota that has no effect.
    """
    yield from _rejection_of(projection, name)
    for key, reason in sorted(projection.duplicates.get(name, {}).items()):
        yield f"ElasticQuota {key.partition('/')[2]} is rejected: {reason}"
    declared = projection.lookup.quotas.get(name)
    if declared is not None:
        yield from (f"Ignored: {fault}" for fault in faults_of(declared))


def bar(line: OverviewRow) -> str:
    """Returns the used, free and exceeding part of the runtime, on a scale of the largest of max, runtime and used.

    Cells are rounded up, so that what is not zero is seen.
    """
    if line.runtime is None or line.runtime >= UNLIMITED:
        return ""
    top = max(line.runtime, line.used)
    if line.max is not None and line.max < UNLIMITED:
        top = max(top, line.max)
    if not top:
        return ""
    used, runtime = (-(-size * BAR // top) for size in (line.used, line.runtime))
    within = min(used, runtime)
    if line.used > line.runtime:
        within, used = (
            min(within, BAR - 1),
            max(used, min(within, BAR - 1) + 1),
        )  # over-use is seen, be it ever so small
        runtime = within
    return USED * within + OVER * (used - within) + FREE * max(0, runtime - used) + BEYOND * (BAR - max(used, runtime))


def explained(found: RuntimeExplanation) -> str:
    """The arithmetic, level by level."""
    over = {name: size for name, size in sub(found.used, found.runtime).items() if size > 0 and name in found.runtime}
    ending = f", {human_amounts(over)} too much" if over else ""
    runtime = f"runtime {human_amounts(found.runtime)}" if found.runtime else "not limited"
    text = [f"{found.quota}: {runtime}, used {human_amounts(found.used)}{ending}"]
    text += map(_short_resource, found.short)
    for level in found.levels:
        text += _level(level)
    if found.below:
        text += [
            "",
            "Quotas below:",
            *(f"  {name}  uses {human_amounts(nonzero(used))}" for name, used in found.below.items()),
        ]
    if found.pods:
        text += ["", "Pods:", *map(_pod, found.pods)]
    if found.more_pods:
        parts = [
            f"{verb} {human_amounts(sizes)}"
            for verb, sizes in (("use", found.more_used), ("wait for", found.more_waiting))
            if sizes
        ]
        text.append(f"  and {found.more_pods} more, which {' and '.join(parts)}")
    return "\n".join(text) + "\n"


def why_pod(found: PodExplanation) -> str:
    """The standing of a pod in its quota."""
    text = [f"{found.pod} belongs to quota {found.quota} (by {found.matched_by})"]
    if found.missing_quota:
        text.append(
            f"Its label names quota {found.missing_quota}, which does not exist: correct it, or create the quota."
        )
    match found.state:
        case "rejected":
            text.append(f"That quota is rejected, and its pods wait: {found.text}")
        case "used":
            text.append("It uses its quota already.")
        case "fits":
            text.append("Its quota has room for it; if it waits, that is for another reason: `koord why pod`.")
        case _:
            text += _short(found)
    return "\n".join(text) + "\n"


def changes(found: Mapping[str, Mapping[str, list[int]]]) -> Iterator[tuple[str, ...]]:
    """The table of `koord whatif quota`."""
    for quota, resources in sorted(found.items()):
        for resource, (now, then) in resources.items():
            sign = "+" if then > now else ""
            yield quota, resource, amount(resource, now), amount(resource, then), sign + amount(resource, then - now)


def _short_resource(short: ShortResource) -> str:
    """Returns why pods of a quota wait for a resource: its bound, the use, and the requests that do not fit."""

    def of(size: int) -> str:
        return human_amount(short.resource, size)

    how = "" if short.bound == "max" else "; the runtime grows as other quotas request less"
    return (
        f"  short of {short.resource}: {of(short.used)} of its {short.bound} {of(short.limit)} is used, "
        f"and pods that wait request {of(short.waiting)}{how}"
    )


def _pod(pod: ExplainedPod) -> str:
    return f"  {pod.pod}  {'uses' if pod.charged else 'waits for'} {human_amounts(pod.request)}  (by {pod.matched_by})"


def _short(found: PodExplanation) -> Iterator[str]:
    yield found.text
    yield f"Quota {found.short_of} is short of {human_amounts(found.missing)}."
    if (holders := found.used_by) is not None:
        yield from (f"  held by {pod}: {human_amounts(sizes)}" for pod, sizes in holders.pods.items())
        if holders.more:
            yield f"  held by {holders.more} more: {human_amounts(holders.more_used)}"
    if found.bounded_by:
        yield f"  its {found.bounded_by} is {human_amounts(found.bound)}: only a higher one{_or_ending_pods(found)} makes room"
    yield from (f"  quota {quota} borrows {human_amounts(sizes)}" for quota, sizes in found.borrowers.items())


def _or_ending_pods(found: PodExplanation) -> str:
    """Returns an alternative to a higher bound; none where no pod uses the quota."""
    return " or the end of pods" if found.used_by is not None and found.used_by.pods else ""


def _level(level: LevelShares) -> Iterator[str]:
    def of(size: int) -> str:
        return exact_amount(level.resource, size)

    taken = "".join(f" - {of(size)} that {name} uses" for name, size in level.reserved.items())
    there = f"{of(level.total)}{taken} = {of(level.capacity)}" if taken else of(level.capacity)
    yield ""
    if not any(step.demand for step in level.children) and not level.borrowed:
        yield f"{level.resource} below {level.parent}: {there} to share, and no quota requests any"
        return
    yield f"{level.resource} below {level.parent}: {there} to share"
    if level.minima > level.capacity:
        shrink = any(step.effective_min < step.min for step in level.children)
        how = ": each counts in proportion" if shrink else ", and stay as they are"
        yield f"  the minima come to {of(level.minima)}, more than there is{how}"
    for step in level.children:
        parts = " + ".join(of(size) for size in (step.base, *step.rounds))
        yield f"  {step.quota}: {_terms(step, of)}: {parts} = {of(step.runtime)}"
    yield f"  {_left(level, of)}"
    yield f"  surplus {of(level.surplus)} + lent {of(level.lent)} = borrowed {of(level.borrowed)} + idle {of(level.idle)}"


def _terms(step: ChildShare, of: Callable[[int], str]) -> str:
    """Returns request, min and weight of a child."""
    request = f"requests {of(step.request)}"
    if step.demand != step.request:
        request += (
            f", of which {of(step.demand)} count"
            if step.demand < step.request
            else f", at least {of(step.demand)} count"
        )
    effective_min = f"min {of(step.min)}"
    if step.effective_min != step.min:
        effective_min += f", in force {of(step.effective_min)}" + (
            " as it is used" if step.effective_min > step.min else ""
        )
    return f"{request}, {effective_min}, weight {of(step.weight)}" + ("" if step.lends else ", does not lend")


def _left(level: LevelShares, of: Callable[[int], str]) -> str:
    """Returns the remainder and its division."""
    if level.remainder <= 0:
        return "nothing is left to share by weight"
    if not level.rounds:
        return f"{of(level.remainder)} is left, and no quota with a weight requests more"
    rounds = (f"{of(each.remainder)} over {of(each.weights)}" for each in level.rounds)
    return f"what is left is shared by weight: {', then '.join(rounds)}"
