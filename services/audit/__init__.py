"""The event stream for outsiders: CloudEvents on JetStream, signed checkpoints, reads of old events."""
