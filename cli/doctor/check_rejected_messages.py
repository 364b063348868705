"""Messages that services rejected: the logins that may have sent them, by the subjects that each login may use."""

from collections.abc import Iterator, Mapping, Sequence

from cli.credentials.permissions import Login, declared_logins
from cli.doctor.finding import Finding
from cli.service_list import SERVICES, metrics_shards
from shared.agents import subjects
from shared.kube.instants import SECOND, instant_text
from shared.rejected_messages import RejectedMessages
from shared.runtime.status import Status

NAMED = 10
"""So many senders are named; the others are counted."""
NAMED_SUBJECTS = 5
"""So many subjects of each."""


def logins() -> list[Login]:
    """Returns the logins of this installation, without those of nodes."""
    return declared_logins(SERVICES, metrics_shards())


def about_rejected(statuses: Mapping[str, Status | None], known: Sequence[Login]) -> Iterator[Finding]:
    """Names the senders of messages that services rejected within the last minutes.

    Args:
        statuses: name of a process -> its status; None without a response.
        known: logins that may have sent them; a node's login follows from the subject.
    """
    found: dict[tuple[str, str, str], list[tuple[str, RejectedMessages]]] = {}
    for service, status in statuses.items():
        for rejected in status.rejected if status else ():
            found.setdefault(_sender(rejected.subject, known), []).append((service, rejected))
    for (who, first, login), rejections in list(found.items())[:NAMED]:
        topics, by = (list(dict.fromkeys(each)) for each in zip(*((r.subject, s) for s, r in rejections), strict=True))
        more = f" and {len(topics) - NAMED_SUBJECTS} more subjects" if len(topics) > NAMED_SUBJECTS else ""
        counts = {rejected.subject: rejected.count for _, rejected in rejections}
        since = instant_text(min(rejected.since_ns for _, rejected in rejections) // SECOND * SECOND)
        newest = max((rejected for _, rejected in rejections), key=lambda rejected: rejected.last_ns)
        what = (
            f"{who} sends messages on {', '.join(topics[:NAMED_SUBJECTS])}{more} that {', '.join(by)} rejects: "
            f"{sum(counts.values())} since {since}, the newest for: {' '.join(newest.reason.split())}"
        )
        do = f"{first}; if another program uses the login: `koord credentials rotate DIR {login}`"
        yield Finding("warning", "credentials", what, do)
    if len(found) > NAMED:
        what = f"messages of {len(found) - NAMED} more senders are rejected"
        yield Finding("warning", "credentials", what, "see the services' logs, and /statusz")


def _sender(subject: str, known: Sequence[Login]) -> tuple[str, str, str]:
    """Returns the logins that may publish on a subject, what to look at first, and the name of one of the logins."""
    try:
        node = subjects.node_of(subject)
    except subjects.BadNode:
        senders = [login for login in known if any(_matches(subject, pattern) for pattern in login.bus.publish)]
        names, users = [login.name for login in senders], [login.bus.user for login in senders]
        who = f"the login {' or '.join(users)}" if users else "a sender without a login of this installation"
        return who, "no state changes by them; see which program sends them", names[0] if names else "LOGIN"
    return f"the login of node {node}", "see the node's agent: its clock, its release, its log", subjects.token(node)


def _matches(subject: str, pattern: str) -> bool:
    """Reports whether a subject, or a pattern of subjects, is one of a pattern's."""
    of_pattern, of_subject = pattern.split("."), subject.split(".")
    if of_pattern[-1] == ">" and len(of_subject) >= len(of_pattern):
        of_pattern = of_pattern[:-1]
        of_subject = of_subject[: len(of_pattern)]
    return len(of_pattern) == len(of_subject) and all(
        token in ("*", other) for token, other in zip(of_pattern, of_subject, strict=True)
    )
