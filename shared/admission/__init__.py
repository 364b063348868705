"""Admission rules of the webhooks: defaults and checks of objects before they are stored, as pure functions."""
