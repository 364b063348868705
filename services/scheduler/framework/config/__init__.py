"""KubeSchedulerConfiguration: its schema, its checks, and the profiles that follow from it."""
