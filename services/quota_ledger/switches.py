"""Where upstream's numbers differ from the exact ones, and whether to have upstream's. Sources: spec/quota.md 3.4, 7.5."""

import msgspec


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """All off but the last: exact. `UPSTREAM` is what recorded cases are compared with.

    Attributes:
        default_group_competes: the system and default groups take part at the first level although their use is no longer in it.
        float_min_scaling: scaled minima are computed in double precision.
        weights_wrap: sums of weights are 64 bits wide, and the stock maximum as a weight of cpu is -600.
        frozen_min_ask: a non-lender's new min reaches its parent's shares only with the next change of its demand.
        release_by_current_mask: a release takes what the quota counts today, not what was charged.
        unlimited_delete_delta: a quota that goes takes its whole request from its parent, not what it had added.
        first_seen_pod: migration and revocation use the first version of a pod that was seen.
        revoke_masks_keys: choosing victims forgets the resources that the last victim does not name.
        default_group_unbounded: the maxima of the system and default groups are not enforced with runtime quota.
    """

    default_group_competes: bool = False
    float_min_scaling: bool = False
    weights_wrap: bool = False
    frozen_min_ask: bool = False
    release_by_current_mask: bool = False
    unlimited_delete_delta: bool = False
    first_seen_pod: bool = False
    revoke_masks_keys: bool = False
    default_group_unbounded: bool = True


EXACT = Switches()
UPSTREAM = Switches(
    default_group_competes=True,
    float_min_scaling=True,
    weights_wrap=True,
    frozen_min_ask=True,
    release_by_current_mask=True,
    unlimited_delete_delta=True,
    first_seen_pod=True,
    revoke_masks_keys=True,
)
