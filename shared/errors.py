"""Base of this project's errors: each names an object, what was found there, and what to do."""


class KoordError(Exception):
    """An error whose text a person can act on. The CLI prints it without a traceback and exits with 1."""
