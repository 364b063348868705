"""What a plugin is, and what a profile makes of its plugins."""
