"""The files that browsers keep: one stylesheet and one script, put together from `static/`, and the few others.

Each stands under a name with the digest of its content, so that browsers ask for it once. They are made in memory when
the web process needs them first (about 20 ms) and are the same in every process of one version: nothing is generated
into the checkout, so nothing there can be out of date. `whetstone.css` names the sheets, SCRIPTS the scripts.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from flask import Blueprint, Flask, Response, request, session, url_for

from app.config import ROOT
from app.errors import NotFound

blueprint = Blueprint("assets", __name__)

STATIC = ROOT / "static"

SCRIPTS = (
    *("app.js", "focus.js", "keyboard.js", "leaving.js"),
    *("vendor/htmx-4.0.1.min.js", "vendor/hx-sse-4.0.1.min.js"),
)
"""In this order: htmx must find our listeners when it starts. Its extension comes with it in one file: alone it could
arrive later, and the event stream would never be opened."""

FILES = {"content.js": "content.js", "passkeys.js": "passkeys.js", "whetstone.svg": "icons/whetstone.svg"}
"""What is not needed by every page, or is no part of one: by its name, the path in `static/`."""

MEDIA_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}

KEPT = "public, max-age=31536000, immutable"

_IMPORTED = re.compile(r'^@import "([^"]+)"(?: layer\((\w+)\))?;$', re.M)
_CHARSET = '@charset "UTF-8";'
_COMMENT = re.compile(r"/\*(?!!).*?\*/\n?", re.S)
_FINGERPRINTED = re.compile(r"([a-z]+)-[0-9a-f]{16}\.([a-z]+)")


@dataclass(frozen=True)
class Asset:
    """A file as it is sent: `packed` by gzip, for whoever takes that."""

    address: str
    body: bytes
    packed: bytes

    @classmethod
    def of(cls, name: str, body: bytes) -> Asset:
        stem, _, ending = name.rpartition(".")
        address = f"{stem}-{hashlib.sha256(body).hexdigest()[:16]}.{ending}"
        return cls(address, body, gzip.compress(body, mtime=0))

    @property
    def media_type(self) -> str:
        return MEDIA_TYPES[self.address.rpartition(".")[2]]


def init_app(app: Flask) -> None:
    """Before whatever else looks at answers: the last word about these is ours."""
    app.after_request(_forget_who_asks)
    app.register_blueprint(blueprint)


def _forget_who_asks(response: Response) -> Response:
    """Else Flask would say that a file varies by the cookie, and browsers would ask again after each sign-in."""
    if request.blueprint == blueprint.name:
        session.accessed = False
    return response


@blueprint.get("/assets/<asset>")
def show(asset: str) -> Response:
    """A file. A page of another version names another digest: it gets ours, which its browser must not keep."""
    named = _FINGERPRINTED.fullmatch(asset)
    found = load_assets().get(f"{named[1]}.{named[2]}") if named else None
    if found is None:
        raise NotFound("There is no such file.")
    response = Response(found.body, content_type=found.media_type)
    if request.accept_encodings["gzip"]:
        response.set_data(found.packed)
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    response.headers["Cache-Control"] = KEPT if asset == found.address else "no-store"
    return response


def asset_url(name: str) -> str:
    """Where a file stands, by its name without the digest."""
    return url_for("assets.show", asset=load_assets()[name].address)


@cache
def load_assets() -> Mapping[str, Asset]:
    """All files, by their names without the digest."""
    files = {name: (STATIC / path).read_bytes() for name, path in FILES.items()}
    files |= {"whetstone.css": bundle_sheets().encode(), "whetstone.js": bundle_scripts().encode()}
    return {name: Asset.of(name, body) for name, body in files.items()}


def bundle_sheets() -> str:
    """Every sheet that `whetstone.css` imports, in its order and layer. Licences stay; other comments go."""
    return _CHARSET + "".join(_sheets((STATIC / "whetstone.css").read_text()))


def _sheets(imports: str) -> Iterator[str]:
    for path, layer in _IMPORTED.findall(imports):
        sheet = _COMMENT.sub("", (STATIC / path).read_text().removeprefix(_CHARSET)).strip()
        yield f"\n@layer {layer}{{{sheet}}}" if layer else f"\n{sheet}"


def bundle_scripts() -> str:
    """Every script behind the one before: they share one scope, as they would in files of their own."""
    return "".join((STATIC / path).read_text().rstrip() + ";\n" for path in SCRIPTS)
