"""Runs services as processes of their own, restarts those that end, and shows how they do."""
