"""Where a node's messages go: one subject a kind of message, with the node as one token, which is also the name of its login.

A node's name may hold what subjects and topics use as separators and wildcards, so those are percent-encoded. NATS maps the MQTT
topic `koord/node/<token>/report` to the subject `koord.node.<token>.report` and back.
"""

from shared.errors import KoordError

REPORT = "report"
"""Agent to ingest: measurements of one interval (shared/agents/report.py)."""
ACTION = "action"
"""Agent to ingest: what it did to a pod, or asks for (shared/agents/actions.py)."""
REFUSED = "refused"
"""Ingest to agent, over MQTT: why a message was not taken (shared/agents/receipt.py)."""
SLO = "slo"
"""Ingest to agent: the newest NodeSLO (shared/agents/node_slo.py)."""

PODS = "pods"
"""Action ingest to agent: the pods of its node (shared/agents/node_pods.py), for an agent that has said that it wants them."""

FROM_AGENT = (REPORT, ACTION)
TO_AGENT = (REFUSED, SLO, PODS)

SLO_STREAM = "KOORD_NODE_SLO"
"""The JetStream stream that holds the newest NodeSLO of each node, for agents on NATS."""

_SPECIAL = frozenset(".*>%/+#$")


class BadNode(KoordError):
    """A node's name, token or subject that is not one."""

    def __init__(self, found: str, reason: str) -> None:
        super().__init__(f"{found!r} {reason}")


def token(node: str) -> str:
    """A node's name as one token: `rack.1` -> `rack%2E1`.

    Raises:
        BadNode: it is empty.
    """
    if not node:
        raise BadNode(node, "is no name of a node; give the Kubernetes node's name")
    return "".join(
        _encoded(sign) if sign in _SPECIAL or not sign.isprintable() or sign == " " else sign for sign in node
    )


def node_of_token(found: str) -> str:
    """The node that a token names.

    Raises:
        BadNode: it is not what `token` gives for any node; each node has one spelling.
    """
    first, *rest = found.split("%")
    try:
        raw = first.encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in rest)
        node = raw.decode()
    except ValueError as error:
        raise BadNode(found, "is no node's token") from error
    if not node or token(node) != found:
        raise BadNode(found, "is no node's token")
    return node


def subject(node: str, kind: str) -> str:
    """The NATS subject of a node's messages of one kind: `koord.node.<token>.report`."""
    return f"koord.node.{token(node)}.{kind}"


def topic(node: str, kind: str) -> str:
    """The same as an MQTT topic: `koord/node/<token>/report`."""
    return f"koord/node/{token(node)}/{kind}"


def slo_question(node: str) -> str:
    """What an agent on NATS asks for its newest NodeSLO: the stream's direct read of one subject, which a login can be held to.

    The answer is the message, or empty when there is none.
    """
    return f"$JS.API.DIRECT.GET.{SLO_STREAM}.{subject(node, SLO)}"


def every_subject(kind: str) -> str:
    """All nodes' subjects of one kind."""
    return f"koord.node.*.{kind}"


def every_topic(kind: str) -> str:
    """All nodes' topics of one kind."""
    return f"koord/node/+/{kind}"


def node_of(where: str) -> str:
    """The node that a subject or a topic belongs to.

    Raises:
        BadNode: it is no subject or topic of a node.
    """
    parts = where.split("/" if "/" in where else ".")
    if len(parts) != 4 or parts[:2] != ["koord", "node"]:
        raise BadNode(where, "is no subject of a node; those are koord.node.<token>.<kind>")
    return node_of_token(parts[2])


def _encoded(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode())
