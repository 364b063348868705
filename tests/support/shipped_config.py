"""The scheduler's configuration as Koordinator ships it."""

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE

SHIPPED_WITH_ELECTION = DEFAULT_PROFILE.replace(
    "profiles:\n",
    "leaderElection:\n  leaderElect: true\n  resourceLock: leases\n  resourceName: koord-scheduler\n"
    "  resourceNamespace: koordinator-system\nprofiles:\n",
    1,
)
