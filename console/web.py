"""Serves the console's files: the bundle in `console/web/dist`, and its single page for every address of the
application.
"""

import mimetypes
from collections.abc import Callable
from os.path import isfile
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

__all__ = ["SECURITY_HEADERS", "Web"]

DIST = Path(__file__).parent / "web" / "dist"
#: The page loads scripts and styles only from here, and no other site may show it in a frame.
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self';"
        " frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: Compressed forms, the smallest first.
_PACKED = {"br": ".br", "gzip": ".gz"}
_NOT_BUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>candlewright</title></head>
<body><h1>The console is not built</h1>
<p>Build it with <code>./run build</code> in the checkout, then load this page again. The HTTP API works without it:
see <a href="/api/v1/openapi.json">/api/v1/openapi.json</a>.</p>
</body></html>
"""


class Web(StaticFiles):
    """Files with a hash in their name never change; the page itself is requested every time."""

    def __init__(self, on_page: Callable[[], object] = lambda: None) -> None:
        """`on_page`: called for each page that is served."""
        super().__init__(directory=DIST, check_dir=False)
        # Otherwise a folder that is not built yet would be an error.
        self.config_checked = True
        self._index = DIST / "index.html"
        self._on_page = on_page

    async def get_response(self, path: str, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        if not self._index.is_file():
            return HTMLResponse(_NOT_BUILT, 200, {"Cache-Control": "no-store"})
        try:
            packed, encoding = _packed(path, Headers(scope=scope).get("accept-encoding", ""))
            found = await super().get_response(packed, scope)
            if encoding:
                found.headers["Content-Encoding"] = encoding
                found.headers["Content-Type"] = mimetypes.guess_type(path)[0] or "application/octet-stream"
            is_page = path in (".", "index.html")
        except HTTPException as error:
            if error.status_code != 404 or "." in path.rpartition("/")[2]:
                raise
            found, is_page = FileResponse(self._index), True
        if is_page:
            self._on_page()
        hashed = path.startswith("assets/")
        if hashed:
            found.headers["Vary"] = "Accept-Encoding"
        found.headers["Cache-Control"] = "public, max-age=31536000, immutable" if hashed and not is_page else "no-cache"
        return found


def _packed(path: str, accepted: str) -> tuple[str, str]:
    """The file to send: assets have compressed copies beside them, made with the bundle."""
    if path == ".":
        return "index.html", ""
    wanted = {each.partition(";")[0].strip() for each in accepted.split(",")}
    for encoding, suffix in _PACKED.items():
        # `Path.is_file` raises for a name that is too long.
        if encoding in wanted and path.startswith("assets/") and isfile(DIST / f"{path}{suffix}"):  # noqa: PTH113
            return f"{path}{suffix}", encoding
    return path, ""
