"""Faults of effects: what the gateway gives up stays undone, and what it calls failed may have been done."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from services.gateway.effects import outcomes_without_api_request
from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.intent_types import object_ref
from services.gateway.effects.read_back_confirmations import Confirmations
from services.gateway.effects.spend_budget_or_pause_eviction import EvictionPauses
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import PODS
from services.quota_ledger.state.open_evictions import OpenEvictions


def given_up_for_good() -> AbstractContextManager[Any]:
    """A desired state that the API server did not take within the deadline is never due again."""
    return patch.object(DriftTracker, "to_retry", lambda *_: iter(()))


def failed_without_a_read() -> AbstractContextManager[Any]:
    """A binding or an eviction whose requests got no answer counts as failed at once."""

    async def outcome(_self: Any, _cause: Any, _intent: Any, _state: Any, found: Any) -> Any:
        return found

    return patch.object(Confirmations, "outcome", outcome)


def requests_of_an_earlier_gateway_are_forgotten() -> AbstractContextManager[Any]:
    """An intent fails although the gateway before this one may have ended in the middle of its request."""
    return patch.object(Confirmations, "inherited", lambda *_: None)


def conditions_are_written_whatever_the_version() -> AbstractContextManager[Any]:
    """A condition whose request got no answer is written late, over that of the pod's binding."""
    patched = KubeApi.patch

    async def without_version(self: Any, resource: Any, key: str, body: Any, **how: Any) -> Any:
        if resource is PODS:
            metadata = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
            body = {**body, "metadata": metadata}
        return await patched(self, resource, key, body, **how)

    return patch.object(KubeApi, "patch", without_version)


def desired_states_outlast_their_object() -> AbstractContextManager[Any]:
    """A desired state stays in force once another object has the name of its own."""

    def has_object(state: Any, desired: Any) -> bool:
        resource, key = object_ref(desired)
        return key in state.known.get(resource, {})

    return patch.object(outcomes_without_api_request, "_has_object", has_object)


def evictions_before_an_observed_binding_have_no_node() -> AbstractContextManager[Any]:
    """An eviction spends no budget of a node until a watch has shown its pod there."""
    return patch.object(EvictionPauses, "_forget_observed_bindings", lambda self, _state: self._bound.clear())


def revoked_pods_are_requested_again() -> AbstractContextManager[Any]:
    """The ledger repeats an eviction that waits for its outcome."""
    return patch.object(OpenEvictions, "pods", lambda _self: frozenset())


EFFECT_MUTATIONS = (
    revoked_pods_are_requested_again,
    evictions_before_an_observed_binding_have_no_node,
    desired_states_outlast_their_object,
    given_up_for_good,
    failed_without_a_read,
    requests_of_an_earlier_gateway_are_forgotten,
    conditions_are_written_whatever_the_version,
)
