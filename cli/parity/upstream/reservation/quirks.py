"""The quirks of upstream's Reservation plugin, in the order in which rules add them to a model without any."""

from enum import Enum


class Quirk(Enum):
    """One way in which upstream's answers differ from production's.

    The value is the heading of docs/compat.md that argues for production's.

    Attributes:
        BROKEN_OBJECTS: a broken annotation of a pod is reported by the text of the JSON parser alone; a Reservation
            with one is placed, and no pod may use it.
        LATE_CONSUMPTION: a consumed Reservation of one pod is restored until the next event of a Reservation; after it,
            it counts whole beside its owner.
        COUNTED_TWICE: owners are subtracted from their Reservation only where it can be read and where the incoming pod
            may use some Reservation.
        WHOLE_OWNER: an owner's whole request is subtracted from its Reservation, also what it has beyond it.
        NAMED_AMOUNTS: what a Reservation lacks that a pod requires by name is reported with amounts.
        REPEATED_REASONS: a node gives a reason once for each Reservation.
        CUT_INNER: an update cuts amounts that no owner may use down to the restricted resources.
        ORDER_OF_ANY: the node is preferred that holds the smallest order, whether the pod can use that Reservation or
            not.
        PREEMPTION_REASON: a node without a matching Reservation that still lacks resources without the victims is
            rejected by this plugin.
    """

    BROKEN_OBJECTS = "A Reservation or a pod with errors"
    LATE_CONSUMPTION = "A Reservation of one pod is consumed at once"
    COUNTED_TWICE = "An owner counts once"
    WHOLE_OWNER = "An owner that requests more than its Reservation has"
    NAMED_AMOUNTS = "Reasons have no amounts"
    REPEATED_REASONS = "A node gives a reason once"
    CUT_INNER = "Amounts that no owner may use"
    ORDER_OF_ANY = "The smallest order counts where it can be used"
    PREEMPTION_REASON = "Lacking resources are reported by the plugin that checks them"


Quirks = frozenset[Quirk]

ALL: Quirks = frozenset(Quirk)
NONE: Quirks = frozenset()
