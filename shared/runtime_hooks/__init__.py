"""The hooks of pods and containers between a runtime proxy and the servers that it calls: stages, messages, registration."""
