"""The RBAC rules that the gateway's account needs: those of its reads, and those of the intents that manifests declare.

k8s/rbac and k8s/webhooks/rbac.yaml are generated from these (`python -m tools.generate`).
"""

from collections.abc import Iterator

from services.gateway.kube_api.resources import CONFIG_MAPS, EVENTS, PODS, watched_resources
from services.gateway.settings import GatewaySettings
from shared.events import Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.rbac_permissions import Rule
from shared.runtime.declared_intents import DECLARED
from shared.runtime.intent_rights import IntentRight

CONFIGURATION_NAME = "koordstream-webhooks"
"""Name of both webhook configuration objects."""

LEASE_NAME = "koordstream"
"""Name of the Lease of the system that writes to the cluster."""

_WRITTEN: dict[type[Event], str] = {PodPlaced: "create", EvictionRequested: "create", PodUnschedulable: "patch"}
_PURPOSES: dict[type[Event], str] = {
    PodPlaced: "binding pods to their nodes",
    EvictionRequested: "evicting pods",
    PodUnschedulable: "the condition of pods that are not scheduled",
}


def rules(settings: GatewaySettings) -> list[Rule]:
    """Returns the rules for all requests of the gateway; in shadow mode only those of its reads."""
    needed = list(reading_rules(settings))
    if not settings.shadow:
        needed += [*writing_rules(), *lease_rules(settings)]
        if settings.webhook_listen:
            needed += webhook_rules(settings)
    return _merged(needed)


def reading_rules(settings: GatewaySettings) -> Iterator[Rule]:
    """Yields the rules for watches."""
    for resource in watched_resources(settings.config_namespace):
        for verb in ("list", "watch"):
            namespace = resource.namespace if resource.name == CONFIG_MAPS.name else ""
            yield _rule(verb, resource.name, "", f"observing {resource.plural}", namespace)


def writing_rules() -> list[Rule]:
    """Returns the rules for the intents that the manifests declare."""
    needed = [rule for context, rights in DECLARED.items() for right in rights for rule in _of_right(context, right)]
    return _merged([*needed, *_events("Kubernetes Events about pods")])


def lease_rules(settings: GatewaySettings) -> list[Rule]:
    """Returns the rules for the Lease by which a second system that would write to the cluster is noticed."""
    why = "noticing a second system that writes to the cluster"
    return [
        Rule(verb, "leases", "coordination.k8s.io", settings.webhook_namespace, why, LEASE_NAME * (verb != "create"))
        for verb in ("get", "create", "update")
    ]


def webhook_rules(settings: GatewaySettings) -> list[Rule]:
    """Returns the rules for certificates, webhook configurations, and pods that were created past the webhooks."""
    needed = []
    for verb in ("get", "create", "update"):
        name = settings.webhook_certificates if verb != "create" else ""
        needed.append(Rule(verb, "secrets", "", settings.webhook_namespace, "the webhooks' certificates", name))
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for verb in ("get", "create", "update", "delete"):
            name = CONFIGURATION_NAME if verb != "create" else ""
            why = "keeping the webhooks' configuration"
            needed.append(Rule(verb, plural, "admissionregistration.k8s.io", "", why, name))
    needed += [_rule(verb, PODS.name, "", "labels of pods that no webhook admitted") for verb in ("get", "patch")]
    return needed


def _of_right(context: str, right: IntentRight) -> Iterator[Rule]:
    # RBAC limits neither by the beginning of a name, nor need a name's namespace exist when the rules are applied.
    namespace, _, name = right.name.rpartition("/") if not right.name.endswith("*") else ("", "", "")
    writes_fields = right.intent is FieldsDesired or (right.intent is PodPlaced and right.fields)
    writing = f"writing {right.resource.partition('.')[0]} for {context}"
    why = writing if writes_fields else _PURPOSES.get(right.intent, writing)
    # After a conflict or a request without a response, the object itself is read.
    yield _rule("get", right.resource, "", why, namespace, name)
    if right.intent is ObjectDesired:
        for verb in ("delete",) if right.deletes else ("create", "patch"):
            yield _rule(verb, right.resource, "", why, namespace, name)
    else:
        verb = "delete" if right.deletes else "patch" if writes_fields else _WRITTEN[right.intent]
        yield _rule(verb, right.resource, right.subresource, why, namespace, name)


def _events(why: str) -> Iterator[Rule]:
    for verb in ("create", "patch"):  # patch: counts a repeated one
        yield _rule(verb, EVENTS.name, "", why)


def _rule(verb: str, resource: str, part: str, why: str, namespace: str = "", name: str = "") -> Rule:
    plural, _, group = resource.partition(".")
    return Rule(verb, f"{plural}/{part}" if part else plural, group, namespace, why, name)


def _merged(needed: list[Rule]) -> list[Rule]:
    """Returns each rule once, with all of its purposes."""
    purposes: dict[tuple[str, str, str, str, str], dict[str, None]] = {}
    for rule in needed:
        key = (rule.verb, rule.resource, rule.group, rule.namespace, rule.name)
        purposes.setdefault(key, {})[rule.needed_for] = None
    return [
        Rule(verb, resource, group, namespace, "; ".join(why), name)
        for (verb, resource, group, namespace, name), why in purposes.items()
    ]
