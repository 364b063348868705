"""The sub-commands that read the log or run one thing."""
