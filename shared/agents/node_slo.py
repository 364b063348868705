"""The newest NodeSLO of a node, on its way to the agent: the last message of its subject, retained by the broker."""

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from shared.agents.decoding import BadMessage, on_its_topic
from shared.agents.report import Name
from shared.kube.json_text import decode_with


class NodeSlo(msgspec.Struct, frozen=True):
    """A node's NodeSLO in `cluster` at a position.

    Attributes:
        node: must be the node of the topic.
        epoch, seq: of `cluster`; of two messages the one with the higher pair is in force.
        spec: the object's `spec`; None when there is no such object: the defaults are in force.
        memory_policy: the NodeMetric's policy for counting memory in use; empty: the default.
    """

    node: Name
    epoch: Annotated[int, Meta(ge=0)]
    seq: Annotated[int, Meta(ge=0)]
    spec: dict[str, Any] | None = None
    memory_policy: str = ""

    @property
    def position(self) -> tuple[int, int]:
        """The position that decides which of two messages is newer."""
        return self.epoch, self.seq


class BadNodeSlo(BadMessage):
    """A NodeSLO message that is rejected; the last good one stays in force."""

    what: ClassVar[str] = "NodeSLO"


_decoder = msgspec.json.Decoder(NodeSlo)


def encode(slo: NodeSlo) -> bytes:
    """Returns a NodeSLO as a message: JSON, as the object is."""
    return msgspec.json.encode(slo)


def decode(data: bytes, node: str) -> NodeSlo:
    """Returns a message as a NodeSLO.

    Raises:
        BadNodeSlo: names the node, the field and the reason.
    """
    try:
        slo = decode_with(_decoder, data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason, _, path = str(error).partition(" - at `$")
        raise BadNodeSlo(node, path.rstrip("`").removeprefix("."), reason) from error
    return on_its_topic(slo, BadNodeSlo, node)
