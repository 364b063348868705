"""`GET /events`: pages of the audit log over HTTP. Source: spec/node-agent.md 7.4."""

import msgspec
from aiohttp import web

from services.node_agent.audit.audit_reader import AuditReaders, UnknownPage

DEFAULT_SIZE = 256
JSON = "application/json"
NEXT = "Next-Page-Token"


def audit_route(readers: AuditReaders, most: int) -> web.RouteDef:
    """Returns the route.

    Args:
        most: events of a page at most.
    """

    async def events(request: web.Request) -> web.Response:
        text = request.query.get("size", str(DEFAULT_SIZE))
        if not (text.isascii() and text.isdigit() and 0 < int(text) <= most):
            return web.Response(status=400, text=f"size is {text!r}; give a number from 1 to {most}\n")
        try:
            lines, token = readers.page(int(text), request.query.get("pageToken", ""))
        except UnknownPage as error:
            return web.Response(status=409, text=f"{error}\n")
        if request.headers.get("Accept") == JSON:
            body = msgspec.json.encode({"NextPageToken": token, "Events": [msgspec.Raw(line) for line in lines]})
            return web.Response(body=body, content_type=JSON)
        headers = {NEXT: token} if token else {}
        return web.Response(body=b"".join(line + b"\n" for line in lines), headers=headers, content_type="text/plain")

    return web.get("/events", events)
