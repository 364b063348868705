"""The quirks of upstream's elastic quota, in the order in which rules add them to a model without any."""

from enum import Enum


class Quirk(Enum):
    """One way in which upstream's numbers differ from production's.

    The value is the heading of docs/compat.md that argues for production's.

    Attributes:
        TAKES_ANY_QUOTA: an object that breaks a rule of quotas is followed all the same; a second object of a known
            name is not.
        FORGETS_CHILDREN: a quota is removed although it has children; with the root of a tree goes the whole tree.
        KEEPS_RESOURCES: a resource that a tree once had stays in its total.
        GROUPS_COMPETE: the system and default groups take part at the first level although their use is no longer in
            it.
        FLOAT_SCALING: scaled minima are computed in double precision.
        WEIGHTS_WRAP: sums of weights are 64 bits wide, and the stock maximum as a weight of cpu is -600.
        STALE_DEMAND: a level shares by the demand that it was last notified of: a min that changes, a quota that is
            declared or moved without pods, and one that is declared before its parent, are not seen until a pod's
            demand changes.
        WHOLE_DELTA: a quota that goes takes its whole request from its parent, not the limited one that it had added;
            what is allocated below the root accumulates over rebuilds, in the resources that quotas had at each use.
        LATE_HOMES: a pod is counted in the quota that its last event led to; the default group's pods are looked at now
            and then.
        COUNTS_ENDED: a pod that has ended still counts as requested, and as used where it was.
        FREES_BOUND: a reservation that is given back takes the charge from a pod although it is bound.
        CURRENT_MASK: a pod is released with the resources that its quota counts on that day.
        FIRST_SEEN: migration and revocation use the first version of a pod that was seen.
        MASKED_VICTIMS: choosing victims of over-use forgets the resources that the last victim does not name.
        REVOKES_LEAVING: victims of over-use are chosen among pods that are being deleted, too.
        HINTS_BY_RELATION: a pod is woken by what happens in its quota, as a copy made every two minutes has it, with or
            without room for it.
        PREEMPTS_ON_A_NODE: preemption inside a quota looks at one node at a time, and not whether the quota
            has room then.
    """

    TAKES_ANY_QUOTA = "A quota that breaks a rule, without webhooks"
    FORGETS_CHILDREN = "A quota is removed after its children"
    KEEPS_RESOURCES = "A resource that no node has any more"
    GROUPS_COMPETE = "The system and default groups do not compete"
    FLOAT_SCALING = "Minima are scaled exactly"
    WEIGHTS_WRAP = "Weights do not wrap around"
    STALE_DEMAND = "A new min counts at once"
    WHOLE_DELTA = "A quota takes from its parent what it had added"
    LATE_HOMES = "Quotas apply at once"
    COUNTS_ENDED = "A pod that has ended counts no more"
    FREES_BOUND = "A bound pod stays charged"
    CURRENT_MASK = "What was charged is what is released"
    FIRST_SEEN = "A pod counts as it is now"
    MASKED_VICTIMS = "Choosing victims forgets no resource"
    REVOKES_LEAVING = "Terminating pods count as revoked"
    HINTS_BY_RELATION = "Waiting pods are requeued by changes that help them"
    PREEMPTS_ON_A_NODE = "Preemption inside a quota frees enough capacity"


Quirks = frozenset[Quirk]

ALL: Quirks = frozenset(Quirk)
NONE: Quirks = frozenset()
