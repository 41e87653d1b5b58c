"""Forms that pages send: a route for each, which answers with another page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pgdyno.errors import UsageError
from pgdyno.features.serve.index import Index
from pgdyno.features.serve.pages import answered

Form = Mapping[str, str]
"""Values by name; the last one of several with the same name."""

FORM_BYTES_MAX = 16_384

KIND = "application/x-www-form-urlencoded"


def shown(path: str, page: Callable[[Index, Request], Response], index: Index) -> Route:
    """Return the route of a page with a form."""
    return Route(path, partial(answered, page, index), methods=["GET"])


def sent(path: str, action: Callable[[Index, Request, Form], Response], index: Index) -> Route:
    """Return the route to which a form is sent. Errors of the action become a page."""

    async def answer(request: Request) -> Response:
        body = b""
        if request.headers.get("content-type", "").partition(";")[0] == KIND:
            async for part in request.stream():
                body += part
                if len(body) > FORM_BYTES_MAX:
                    break
        return await run_in_threadpool(answered, partial(_acted, action, body), index, request)

    return Route(path, answer, methods=["POST"])


def _acted(
    action: Callable[[Index, Request, Form], Response], body: bytes, index: Index, request: Request
) -> Response:
    if len(body) > FORM_BYTES_MAX:
        raise UsageError(f"the form has more than {FORM_BYTES_MAX} bytes: shorten its values")
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError:
        raise UsageError("the form is not UTF-8") from None
    return action(index, request, form)


def then(address: str) -> Response:
    """Return the answer that leads to another page, which the browser gets without the form."""
    return RedirectResponse(address, 303)
