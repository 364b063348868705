"""The charge of a cycle: what is requested of the quota ledger, and what its response makes of the plan.

The request itself is in `charge_client`; a replay takes the response from the log.

Source: architecture.md, Charging quota.
"""

from collections.abc import Mapping
from typing import NamedTuple

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import CyclePlan
from services.scheduler.plugins.elastic_quota.nominated_pod_quota import refused_for_nominated
from services.scheduler.quota.take_back_placements_without_quota import charged_plan, groups_to_charge
from shared.events.scheduling import QuotaShort


class LedgerResponse(NamedTuple):
    """The part of the quota ledger's response that the scheduler uses.

    Attributes:
        charged_at: `quota` seq at which it was recorded.
        refused: uid -> the reason.
    """

    charged_at: int
    refused: Mapping[str, QuotaShort]


class ChargeOfCycle(NamedTuple):
    """The pods of a plan that need a charge.

    Attributes:
        refused: uid -> what it lacks beside the capacity that is kept for nominated pods: no charge is requested for
            it.
        groups: the pods to charge, by uid; those of a group together or not at all.
    """

    refused: Mapping[str, QuotaShort]
    groups: tuple[tuple[str, ...], ...]


def charge_of(plan: CyclePlan, cache: CycleInputs) -> ChargeOfCycle | None:
    """Returns what is to be charged for a plan; None where no pod needs a charge.

    Args:
        cache: that the plan rests on.
    """
    quota = cache.view.quota
    groups = groups_to_charge(plan, lambda pod_class: quota.needs_charge(pod_class.namespace, pod_class.labels))
    if not groups:
        return None
    refused = refused_for_nominated(cache.view, cache.nominated.values(), groups)
    return ChargeOfCycle(
        refused, tuple(tuple(pod.uid for pod in group) for group in groups if group[0].uid not in refused)
    )


def charged(plan: CyclePlan, cache: CycleInputs, charge: ChargeOfCycle, response: LedgerResponse | None) -> CyclePlan:
    """Returns the plan to record: without the units that were refused, and with preemption for them.

    Args:
        cache: as it was for the plan.
        response: None where nothing was requested, or the ledger did not respond.
    """
    refused: dict[str, QuotaShort | None] = {**charge.refused}
    if response is None:
        refused |= dict.fromkeys(uid for group in charge.groups for uid in group)
        return charged_plan(cache, plan, refused, 0)
    after = charged_plan(cache, plan, refused | dict(response.refused), response.charged_at)
    return after._replace(refused=response.refused)
