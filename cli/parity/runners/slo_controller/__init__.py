"""Recorded inputs of upstream, answered by this code, in the shape of the recorded outputs."""
