"""Every intent in every context, on the gateway and the simulator: only the declared ones write anything."""

import pytest

from shared.events.cluster import IntentRefused
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.runtime.declared_intents import DECLARED, declared_refusal
from tests.contract.scenario import Scenario
from tests.support.intents import CONTEXTS, declared_intent

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("context", CONTEXTS)
async def test_each_intent_ends_in_one_outcome_and_is_refused_where_it_is_not_declared(
    scenario: Scenario, context: str
) -> None:
    uid = await scenario.create_pod("web")
    causes = {}
    for right in dict.fromkeys(right for rights in DECLARED.values() for right in rights):
        # Cluster-scoped objects have no namespace: the same key is then the name of no object, which the API refuses.
        event = declared_intent(right, name=scenario.key("web"), uid=uid)
        if declared_refusal(context, event):
            causes[(await scenario.log.append_intents(event, context=context))[0]] = event
    assert causes
    for cause, event in causes.items():
        (outcome,) = await scenario.log.outcomes(cause)
        assert isinstance(outcome, IntentRefused), event
        assert outcome.intent == type(event).__name__
        assert outcome.reason.startswith(f"{context} does not declare")
    pod = await scenario.client.get(scenario.reference("Pod", "web"))
    assert "deletionTimestamp" not in pod["metadata"]
    assert not pod["spec"].get("nodeName")


@pytest.mark.parametrize("context", [context for context in CONTEXTS if context != "slo"])
async def test_no_context_but_that_of_the_slo_controller_writes_to_a_node(scenario: Scenario, context: str) -> None:
    await scenario.create_node("n")
    before = await scenario.client.get(scenario.node("n"))
    cordon = {"spec": {"unschedulable": True}, "metadata": {"labels": {"forged": "yes"}}}
    amounts = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "1"}}}
    for patch, subresource in ((cordon, ""), (amounts, "status")):
        intent = FieldsDesired(
            resource="nodes", name=scenario.name("n"), fields="x", patch=patch, subresource=subresource
        )
        (cause,) = await scenario.log.append_intents(intent, context=context)
        assert isinstance((await scenario.log.outcomes(cause))[0], IntentRefused)
    after = await scenario.client.get(scenario.node("n"))
    assert after.get("spec") == before.get("spec")
    assert after["metadata"].get("labels") == before["metadata"].get("labels")
    assert after["status"]["allocatable"] == before["status"]["allocatable"]


async def test_reports_evict_nobody(scenario: Scenario) -> None:
    uid = await scenario.create_pod("web")
    eviction = EvictionRequested(pod_uid=uid, pod=scenario.key("web"), reason="recorded by metrics-0")
    (cause,) = await scenario.log.append_intents(eviction, context="metrics-0")
    (outcome,) = await scenario.log.outcomes(cause)
    assert isinstance(outcome, IntentRefused)
    assert (outcome.resource, outcome.name, outcome.pod_uid) == ("pods", scenario.key("web"), uid)
