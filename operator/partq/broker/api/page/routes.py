"""Serve the page to browsers: files without secrets, which then ask with the user's token.

The page changes nothing by itself: each of its calls is one of the API, with the token in a header.
"""

from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources
from types import MappingProxyType

from aiohttp import web

from partq.broker.api.app_keys import BROKER
from partq.broker.api.endpoints import OPEN, Calls, PageFile
from partq.errors import NotFoundError
from partq.excerpts import excerpt

calls = Calls("page")

INDEX = "index.html"
CONTENT_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
HEADERS = MappingProxyType(
    {
        # The page has no inline code, loads nothing from other sites, and is shown in no frame. So
        # a message or a name on the page cannot run as code, and no other site can embed the page.
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        # A broker of another version has other files, which have to fit together.
        "Cache-Control": "no-store",
    }
)


@cache
def page_files() -> Mapping[str, str]:
    """Return the text of each file of the page by its name; read once."""
    folder = resources.files("partq.broker.api.page") / "files"
    return MappingProxyType(
        {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    )


@calls.add("GET", "/", roles=OPEN, answers={200: PageFile("text/html")})
async def index(request: web.Request) -> web.Response:
    """Show the page of the queue that this broker serves, for browsers.

    It holds the names of namespace, queue and broker, as the metrics do, and asks for a token.
    """
    broker = request.app[BROKER]
    text = page_files()[INDEX]
    for name, value in (
        ("NAMESPACE", broker.settings.namespace),
        ("QUEUE", broker.settings.queue),
        ("BROKER", broker.id),
    ):
        text = text.replace(f"{{{{{name}}}}}", escape(value))
    return web.Response(text=text, content_type="text/html", headers=HEADERS)


@calls.add(
    "GET",
    "/page/{file}",
    roles=OPEN,
    answers={200: PageFile(*CONTENT_TYPES.values())},
    errors=(NotFoundError,),
)
async def file_(request: web.Request) -> web.Response:
    """Show a file of the page, for browsers.

    Raises:
        NotFoundError: the page has no such file.
    """
    name = request.match_info["file"]
    content_type = CONTENT_TYPES.get(name.rpartition(".")[2])
    text = page_files().get(name)
    if content_type is None or text is None:
        raise NotFoundError(f"file {excerpt(name)}: the page does not have it; open / for the page")
    return web.Response(text=text, content_type=content_type, headers=HEADERS)
