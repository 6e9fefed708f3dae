"""Characters that nobody sees, whatever Unicode calls them: names have none, and on pages each gets a mark."""

from __future__ import annotations

import re

_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_FORMATS = (
    r"\u00ad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_PRIVATE = r"\ue000-\uf8ff\U000f0000-\U0010ffff"
_SPACES = r"\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
"""They look like a space, and like nothing else."""

_UNSEEN = _CONTROLS + _FORMATS + _PRIVATE
_COLOURED_SIGN = rf"(?<=[^\w\s{_UNSEEN}])\ufe0f(?![{_UNSEEN}])"
"""A sign's own wish to be drawn as an emoji, as in a red heart: what it does is seen."""

MARKED = re.compile(rf"(?!{_COLOURED_SIGN})[{_UNSEEN}]+")
MARKED_IN_CHANGES = re.compile(rf"(?!{_COLOURED_SIGN})[{_UNSEEN}{_SPACES}]+")

NOTHING_TO_SEE = re.compile(rf"[\s{_CONTROLS}{_FORMATS}{_SPACES}]")
"""One character that alone shows nothing: fillers, variation selectors and tags too, which Unicode counts as letters,
signs or marks. Fonts may draw what is private, so that counts as seen here.
"""
