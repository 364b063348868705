"""Subjects and topics of a node's messages: one a kind of message.

The node is one token, which is also the name of its login.

A node's name may hold separators and wildcards of subjects and topics, so those are percent-encoded. NATS maps the MQTT
topic `koord/node/<token>/report` to the subject `koord.node.<token>.report` and back.
"""

from shared.errors import KoordError

REPORT = "report"
"""Agent to ingest: measurements of one interval (shared/agents/report.py)."""
ACTION = "action"
"""Agent to ingest: an action on its node, or a request (shared/agents/actions.py)."""
INVENTORY = "inventory"
"""Agent to device discovery: the devices of its node (shared/agents/device_inventory.py)."""
REFUSED = "refused"
"""Ingest to agent, over MQTT: the reason why a message was rejected (shared/agents/receipt.py)."""
SLO = "slo"
"""Ingest to agent: the newest NodeSLO (shared/agents/node_slo.py)."""

PODS = "pods"
"""Action ingest to agent: the pods of its node (shared/agents/node_pods.py), for agents that have requested them."""

FROM_AGENT = (REPORT, ACTION, INVENTORY)
TO_AGENT = (REFUSED, SLO, PODS)

SLO_STREAM = "KOORD_NODE_SLO"
"""The JetStream stream that holds the newest NodeSLO of each node, for agents on NATS."""

_SPECIAL = frozenset(".*>%/+#$")


class BadNode(KoordError):
    """A node's name, token or subject that is invalid."""

    def __init__(self, found: str, reason: str) -> None:
        super().__init__(f"{found!r} {reason}")


def token(node: str) -> str:
    """Returns a node's name as one token: `rack.1` -> `rack%2E1`.

    Raises:
        BadNode: it is empty.
    """
    if not node:
        raise BadNode(node, "is no name of a node; give the Kubernetes node's name")
    return "".join(
        _encoded(sign) if sign in _SPECIAL or not sign.isprintable() or sign == " " else sign for sign in node
    )


def node_of_token(found: str) -> str:
    """Returns the node of a token.

    Raises:
        BadNode: `token` gives it for no node; each node has exactly one spelling.
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
    """Returns the NATS subject of a node's messages of one kind: `koord.node.<token>.report`."""
    return f"koord.node.{token(node)}.{kind}"


def topic(node: str, kind: str) -> str:
    """Returns the MQTT topic of a node's messages of one kind: `koord/node/<token>/report`."""
    return f"koord/node/{token(node)}/{kind}"


def slo_question(node: str) -> str:
    """Returns the subject on which an agent on NATS requests its newest NodeSLO.

    It is the stream's direct read of one subject, to which a login can be restricted. The reply is the message, or
    empty without one.
    """
    return f"$JS.API.DIRECT.GET.{SLO_STREAM}.{subject(node, SLO)}"


def every_subject(kind: str) -> str:
    """Returns the pattern of all nodes' subjects of one kind."""
    return f"koord.node.*.{kind}"


def every_topic(kind: str) -> str:
    """Returns the pattern of all nodes' topics of one kind."""
    return f"koord/node/+/{kind}"


def node_of(where: str) -> str:
    """Returns the node of a subject or a topic.

    Raises:
        BadNode: it is not a subject or topic of a node.
    """
    parts = where.split("/" if "/" in where else ".")
    if len(parts) != 4 or parts[:2] != ["koord", "node"]:
        raise BadNode(where, "is no subject of a node; those are koord.node.<token>.<kind>")
    return node_of_token(parts[2])


def _encoded(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode())
