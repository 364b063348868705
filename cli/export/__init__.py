"""The log as files: parts of a range of events each, and a manifest of their contents."""
