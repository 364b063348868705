"""Feature gates of the admission rules, by upstream's names; the last five are of this system alone.

Source: spec/api.md 5.8.
"""

from collections.abc import Mapping

from shared.errors import KoordError

DEFAULTS: Mapping[str, bool] = {
    "PodMutatingWebhook": True,
    "PodValidatingWebhook": True,
    "ElasticMutatingWebhook": True,
    "ElasticValidatingWebhook": True,
    "NodeMutatingWebhook": False,
    "NodeValidatingWebhook": False,
    "ConfigMapValidatingWebhook": False,
    "ReservationMutatingWebhook": False,
    "ColocationProfileSkipMutatingResources": False,
    "ColocationProfileSkipValidatingPriority": False,
    "MultiQuotaTree": False,
    "ElasticQuotaGuaranteeUsage": False,
    "ElasticQuotaEnableUpdateResourceKey": False,
    "DisableDefaultQuota": False,
    "SupportParentQuotaSubmitPod": False,
    "EnableQuotaAdmission": False,
    "EnableQuotaAdmissionOnUpdate": False,
    "ValidatePodDeviceResource": False,
    "EnablePodEnhancedValidator": False,
    "DisableExtendedResourceSpec": False,
    "DisableDeviceResourceSpec": False,
    "ProtectAllocationAnnotations": True,
    "RequireQuotaOfNamespace": False,
    "RequirePriorityClassOfPriority": False,
    "RestrictOOMScoreAdj": False,
    "RequirePlaceableDevices": False,
}
"""Gate -> whether it is on by default."""

Gates = frozenset[str]
"""The gates that are on."""


def gates_of(text: str) -> Gates:
    """Reads `Name=true,Other=false`; gates that are not named keep their defaults.

    Raises:
        KoordError: a part is no such setting, or the gate is unknown.
    """
    on = dict(DEFAULTS)
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in on:
            raise KoordError(f"there is no gate {name!r}; known are {', '.join(sorted(on))}")
        if value.lower() not in ("true", "false"):
            raise KoordError(f"gate {name} is {value!r}; give {name}=true or {name}=false")
        on[name] = value.lower() == "true"
    return frozenset(name for name, switched in on.items() if switched)
