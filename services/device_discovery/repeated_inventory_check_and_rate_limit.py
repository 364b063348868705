"""Memory of each node's newest inventory, by which a repeated one is recognised, and of how often the node may change.

None of it is part of the State: after a restart each node's next inventory is decoded and compared once.
"""

from hashlib import blake2b

from shared.agents.device_inventory import BadInventory, Inventory
from shared.kube.instants import instant_text


class ChangeBudget:
    """A token bucket: so many changes at once after a pause, and one an interval on average."""

    def __init__(self, interval_s: float, burst: int, now_s: float) -> None:
        self._interval_s = interval_s
        self._burst = burst
        self._tokens = float(burst)
        self._filled_s = now_s

    def has_token(self, now_s: float) -> bool:
        """Reports whether a change may be recorded."""
        self._tokens = min(self._burst, self._tokens + (now_s - self._filled_s) / self._interval_s)
        self._filled_s = now_s
        return self._tokens >= 1

    def spend(self, now_s: float) -> bool:
        """Takes a token; False when there is none."""
        if not self.has_token(now_s):
            return False
        self._tokens -= 1
        return True


class NodeInventory:
    """The newest inventory of a node.

    Attributes:
        received_s: when the newest message came, by the loop's clock.
    """

    __slots__ = ("_at_ns", "_boot", "_digest", "_seq", "budget", "received_s")

    def __init__(self, budget: ChangeBudget, now_s: float) -> None:
        self.budget = budget
        self.received_s = now_s
        self._boot = ""
        self._seq = 0
        self._at_ns = 0
        self._digest = b""

    def is_repeated(self, inventory: Inventory) -> bool:
        """Reports whether the inventory changes nothing: its content is the one decided last, or it is an earlier one of
        this run of the agent.

        Raises:
            BadInventory: it is older than the newest one of another run.
        """
        if inventory.boot == self._boot:
            if inventory.seq < self._seq:
                return True
        elif inventory.at_ns < self._at_ns:
            newest = instant_text(self._at_ns)
            reason = f"{instant_text(inventory.at_ns)} is before the newest inventory of the node's other run, {newest}"
            raise BadInventory(inventory.node, "at_ns", f"{reason}; set the node's clock if this goes on")
        if self._digest != _digest(inventory):
            return False
        self._boot, self._seq, self._at_ns = inventory.boot, inventory.seq, inventory.at_ns
        return True

    def accept(self, inventory: Inventory, *, completely: bool) -> None:
        """Makes an inventory the newest one.

        Args:
            completely: all that it changes was decided, so the same content changes nothing.
        """
        self._boot, self._seq, self._at_ns = inventory.boot, inventory.seq, inventory.at_ns
        self._digest = _digest(inventory) if completely else b""


def _digest(inventory: Inventory) -> bytes:
    return blake2b(inventory.content, digest_size=16).digest()
