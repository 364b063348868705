"""Messages that services rejected: the logins that may have sent them, by the subjects that each login may use."""

from collections.abc import Iterator, Mapping, Sequence

from cli.credentials.permissions import Login, declared_logins
from cli.doctor.finding import Finding
from cli.service_list import SERVICES, metrics_shards
from shared.agents import subjects
from shared.kube.instants import SECOND, instant_text
from shared.rejected_messages import RejectedMessages
from shared.runtime.health import Status

NAMED = 10
"""So many senders are named; the others are counted."""


def logins() -> list[Login]:
    """Returns the logins of this installation, without those of nodes."""
    return declared_logins(SERVICES, metrics_shards())


def about_rejected(statuses: Mapping[str, Status | None], known: Sequence[Login]) -> Iterator[Finding]:
    """Names the senders of messages that services rejected within the last minutes.

    Args:
        statuses: name of a process -> its status; None without a response.
        known: logins that may have sent them; a node's login follows from the subject.
    """
    found: dict[str, tuple[list[str], RejectedMessages]] = {}
    for service, status in statuses.items():
        for rejected in status.rejected if status else ():
            by, _ = found.get(rejected.subject, ([], rejected))
            found[rejected.subject] = [*by, service], rejected
    for subject, (by, rejected) in list(found.items())[:NAMED]:
        who, first, login = _sender(subject, known)
        since = instant_text(rejected.since_ns // SECOND * SECOND)
        what = (
            f"{who} sends messages on {subject} that {', '.join(by)} rejects: {rejected.count} since {since}, "
            f"the newest for: {' '.join(rejected.reason.split())}"
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
        names = [login.name for login in known if subject in login.bus.publish]
        users = [login.bus.user for login in known if subject in login.bus.publish]
        who = f"the login {' or '.join(users)}" if users else "a sender without a login of this installation"
        return who, "no state changes by them; see which program sends them", names[0] if names else "LOGIN"
    return f"the login of node {node}", "see the node's agent: its clock, its release, its log", subjects.token(node)
