"""NodeName: a pod that names its node goes to that node only."""
