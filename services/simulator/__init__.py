"""The simulator: a cluster that exists only in memory, behind the gateway's events and intents."""
