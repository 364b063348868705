"""Our quotas on recorded inputs of upstream's."""
