"""Access to the pages: only for who has the token, and only under the address of this server.

The token is in the address that the command prints. The first page keeps it as a cookie, which scripts cannot
read and other sites cannot send. Programs send it in ``Authorization``. A name of the attacker that resolves
to 127.0.0.1 (DNS rebinding) is in ``Host``, and the origin of another page is in ``Origin``: both are
refused. A form (POST) must have the origin of this server, which every browser sends with it.
"""

from __future__ import annotations

import hmac
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode

from markupsafe import Markup
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy: scripts and styles are files of this server, none is in a page."""

HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",  # with no-referrer, the Origin of a form is null
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

ENTRY = Markup(
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>pgdyno</title>'
    '<link rel="icon" href="/static/icon.svg">'
    '<meta http-equiv="refresh" content="0;url={0}"><a href="{0}">Continue</a></html>'
)
"""A browser does not send a strict cookie along a redirect from another site, but from this page."""


class Guard:
    """ASGI application in front of another. ``open``: requests being answered; ``last_s``: monotonic."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        if port == 80:  # which clients omit
            self._hosts |= {"127.0.0.1", "localhost"}
        self._cookie = f"pgdyno-{port}"  # browsers share the cookies of all ports
        self.open, self.last_s = 0, time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        self.open += 1
        try:
            await (self._refusal(scope) or self._app)(scope, receive, send_with_headers)
        finally:
            self.open -= 1
            self.last_s = time.monotonic()

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that the pages do not see."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts or origin not in (None, f"http://{host}"):
            return PlainTextResponse("This host or origin has no access.", 403)
        is_form = scope["method"] == "POST"
        if not is_form and scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("Pages are only read, and forms sent.", 405)
        if is_form and origin is None:
            return PlainTextResponse("A form is sent from a page of this server only.", 403)
        asked = parse_qsl(scope["query_string"].decode("latin-1"))
        given = dict(asked).get("token")
        if given is not None and self._is_token(given) and not is_form:
            return self._entry(scope["path"], [(name, value) for name, value in asked if name != "token"])
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        sent = bearer if scheme.lower() == "bearer" else self._cookie_of(headers.get("cookie", ""))
        if not self._is_token(sent):
            return PlainTextResponse("Open the address that pgdyno has printed, with its token.", 403)
        return None

    def _entry(self, path: str, query: list[tuple[str, str]]) -> Response:
        url = f"/{quote(path.lstrip('/'))}" + (f"?{urlencode(query)}" if query else "")
        found = HTMLResponse(ENTRY.format(url))
        found.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return found

    def _cookie_of(self, text: str) -> str:
        try:
            found = SimpleCookie(text).get(self._cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self._token.encode())
