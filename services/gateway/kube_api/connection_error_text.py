"""Why a request to the API server got no response, in the words of `curl` and `kubectl`."""

import os
import ssl

import aiohttp


def connection_fault(error: Exception) -> str:
    """Returns the reason without address and Python's types, as `Connection refused`."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was cut"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed without a response"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not accepted: {error.verify_message} ({error.reason})"
    if isinstance(error, ssl.SSLError):  # its number is no number of the system
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.errno:
        # A positive one is the system's; a negative one comes from the resolver, which describes it itself.
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error) or type(error).__name__
