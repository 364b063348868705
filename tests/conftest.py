"""Fixtures for all tests."""

pytest_plugins = ("tests.servers", "tests.cluster.fixtures")
