"""The templates of the prompts, and how content stands in them: as one line of JSON that nothing in it can end.

Line breaks, invisible characters and angle brackets are escaped: no content can end its line, close the mark around
it, or forge another entry, a flag or a rule.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.config import ROOT


def encode_json(value: Any) -> str:
    """JSON on one line that can hold no line break, no invisible character and no angle bracket."""
    line = _encode(value)
    is_plain = line.isascii() and line.isprintable() and "<" not in line and ">" not in line
    return line if is_plain else line.translate(_ESCAPES)


def _one_encoder() -> Callable[[Any], str]:
    """`JSONEncoder.encode` makes its encoder in C anew at each call, which takes longer than to encode a memory."""
    encoder, make = json.JSONEncoder(ensure_ascii=False, allow_nan=False), getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    signs = encoder.key_separator, encoder.item_separator
    pieces = make(None, encoder.default, json.encoder.encode_basestring, None, *signs, False, False, False)
    return lambda value: "".join(pieces(value, 0))


_encode = _one_encoder()


class _Escapes(dict[int, str]):
    """How each character stands in an encoded line; learnt as they come."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in "<>\x7f":
            self[code] = f"\\u{code:04x}"
        else:
            hidden = unicodedata.category(character) in _HIDDEN
            self[code] = json.dumps(character)[1:-1] if hidden else character
        return self[code]


_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_ESCAPES = _Escapes()


def render_prompt(name: str, **values: Any) -> str:
    """A template of `templates/prompts`. What may hold content is encoded by the caller."""
    return _prompt_environment().get_template(name).render(**values).strip()


@cache
def _prompt_environment() -> Environment:
    loader = FileSystemLoader(ROOT / "templates" / "prompts")
    return Environment(loader=loader, undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)  # noqa: S701 - prompts are text
