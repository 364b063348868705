"""The pods that the ledger follows, stored so that pods of one workload share everything but name and start time."""
