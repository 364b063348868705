"""Quotas as text."""

from collections.abc import Iterable, Iterator, Mapping

from services.quota_ledger.admission import listed
from services.quota_ledger.explain import Explained, Level, Line, WhyPod
from shared.kube.quantity_text import amount_text

BAR = 20
NO_LIMIT = 2**62


def amount(resource: str, size: int | None) -> str:
    """An amount as Kubernetes writes it; `-` for no limit."""
    if size is None or size >= NO_LIMIT:
        return "-"
    return amount_text(resource, size)


AMOUNTS = ("min", "max", "runtime", "used", "borrowed", "lent", "waiting")
COLUMNS = ("quota", "resource", *AMOUNTS)

USED, OVER, FREE, BEYOND = "█", "▓", "▒", "·"
STYLES = {USED: "green", OVER: "bold red", FREE: "cyan", BEYOND: "dim"}
LEGEND = f"{USED} used  {OVER} used beyond the runtime  {FREE} free of the runtime  {BEYOND} up to max"


def rows(lines: Iterable[Line]) -> Iterator[tuple[str, ...]]:
    """The table of `koord quota tree`."""
    for line in lines:
        sizes = (line.min, line.max, line.runtime, line.used, line.borrowed, line.lent, line.waiting)
        name = "  " * line.depth + line.quota if line.depth else f"all of tree {line.tree}" if line.tree else "all"
        yield name, line.resource, *(amount(line.resource, size) for size in sizes)


def bar(line: Line) -> str:
    """What is used, free and beyond the runtime, on a scale of the largest of max, runtime and used.

    Cells are rounded up, so that what is not zero is seen.
    """
    top = max(line.runtime, line.used)
    if line.max is not None and line.max < NO_LIMIT:
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


def explained(found: Explained) -> str:
    """The arithmetic, level by level."""
    text = [f"{found.quota}: runtime {listed(found.runtime)}, used {listed(found.used)}"]
    for level in found.levels:
        text += _level(level)
    if found.pods:
        text.append("")
        text.append("Pods:")
    for pod in found.pods:
        text.append(f"  {pod.pod}  {'uses' if pod.charged else 'waits for'} {listed(pod.request)}  (by {pod.how})")
    if found.more_pods:
        text.append(f"  and {found.more_pods} more")
    return "\n".join(text) + "\n"


def why_pod(found: WhyPod) -> str:
    """Where a pod stands."""
    text = [f"{found.pod} belongs to quota {found.quota} (by {found.how})"]
    match found.state:
        case "used":
            text.append("It uses its quota already.")
        case "fits":
            text.append("Its quota has room for it; if it waits, that is for another reason: `koord why pod`.")
        case _:
            text.append(found.text)
            text.append(f"Quota {found.short_of} is short of {listed(found.missing)}.")
            text += [f"  held by {pod}: {listed(sizes)}" for pod, sizes in found.held_by.items()]
            text += [f"  quota {quota} borrows {listed(sizes)}" for quota, sizes in found.frees.items()]
    return "\n".join(text) + "\n"


def changes(found: Mapping[str, Mapping[str, list[int]]]) -> Iterator[tuple[str, ...]]:
    """The table of `koord quota whatif`."""
    for quota, resources in sorted(found.items()):
        for resource, (now, then) in resources.items():
            sign = "+" if then > now else ""
            yield quota, resource, amount(resource, now), amount(resource, then), sign + amount(resource, then - now)


def _level(level: Level) -> Iterator[str]:
    def of(size: int) -> str:
        return amount(level.resource, size)

    yield ""
    yield f"{level.resource} below {level.parent}: {of(level.capacity)} to share"
    if level.minima > level.capacity:
        yield f"  the minima come to {of(level.minima)}, more than there is: each counts in proportion"
    for step in level.children:
        floor = f"min {of(step.min)}" if step.floor == step.min else f"min {of(step.min)}, in force {of(step.floor)}"
        kept = "" if step.lends else ", does not lend"
        parts = " + ".join(of(size) for size in (step.certain, *step.rounds))
        yield f"  {step.quota}: asks {of(step.asked)}, {floor}, weight {of(step.weight)}{kept}: {parts} = {of(step.runtime)}"
    yield (
        f"  {of(level.left)} was left to share by weight" if level.left > 0 else "  nothing was left to share by weight"
    )
    yield f"  surplus {of(level.surplus)} + lent {of(level.lent)} = borrowed {of(level.borrowed)} + idle {of(level.idle)}"
