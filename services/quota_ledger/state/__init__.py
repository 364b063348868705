"""The State: a fold over `cluster`, `scheduling` and `quota`."""
