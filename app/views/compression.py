"""Pages on the wire, packed by gzip, unless one could learn a secret from how long an answer is (BREACH).

Packed are the answers of `@page` to a GET. Never: pages that show content under an exception, which say
`@page(…, packed=False)`; answers to acts, which may show a secret once; Flask-Security's forms; partials; streams; and
what is for programs. What is left holds one secret, the form token. Its payload alone is worth nothing, and its
signature is another one every second, so that guesses can't be compared. Besides, a random number of bytes is added.
"""

from __future__ import annotations

import gzip
import io
import secrets

from flask import Response, request

LEVEL = 5
"""Of zlib's nine: a list of 50 agents takes a tenth more bytes than at nine, in a third of the time."""

MOST_PADDING = 64


def pack_page(response: Response) -> Response:
    """Packed, if the asker takes that."""
    response.headers["Vary"] = "Accept-Encoding"
    if request.accept_encodings["gzip"]:
        response.set_data(_gzip(response.get_data()))
        response.headers["Content-Encoding"] = "gzip"
    return response


def _gzip(body: bytes) -> bytes:
    """The format has a place for a file's name, which browsers pass over: here of random length."""
    padding = "x" * (1 + secrets.randbelow(MOST_PADDING))
    packed = io.BytesIO()
    with gzip.GzipFile(padding, "wb", LEVEL, packed, mtime=0) as file:
        file.write(body)
    return packed.getvalue()
