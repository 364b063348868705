"""The scheduler: chooses a node for every waiting pod of its profiles, and records why."""
