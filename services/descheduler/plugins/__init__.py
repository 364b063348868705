"""The plugins by name, and those that are small."""
