"""The runtime of every service: its manifest and settings, the loop that leads, probes, retention and rebuild checks."""
