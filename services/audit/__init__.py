"""The audit service: events as CloudEvents on JetStream, signed checkpoints, reads of old events."""
