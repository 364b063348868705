"""Base of this project's errors: each names an object, what was found there, and what to do."""


class KoordError(Exception):
    """An error whose text a person can act on. The CLI prints it without a traceback and exits with 1."""


def fault_of(error: Exception) -> str:
    """Returns the reason for which a server did not respond, where a library's error has no text for it."""
    return str(error) or ("no response in time" if isinstance(error, TimeoutError) else type(error).__name__)
