"""What differs from run to run is replaced: ids, times, hashes, secrets, addresses. Types and lengths of lists stay."""

from __future__ import annotations

import re
from typing import Any

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?"

_PATTERNS = [
    (re.compile(pattern), word)
    for pattern, word in (
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
        (r"\bwhet_[0-9a-f]{16}_[0-9A-Za-z_-]+", "<token>"),
        (r"/welcome/[\w-]+", "/welcome/<secret>"),
        (r"\b(person|guest)-\d+@", r"\1-<number>@"),
        (r"(Password: +)\S+", r"\1<password>"),
        (rf"\b\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?(?: UTC)?", "<time>"),
        (rf"\b(?:{_DAY},? )?\d{{1,2}} {_MONTH}(?: \d{{4}})?(?:,? {_CLOCK})?(?: UTC)?", "<time>"),
        (rf"\b(?:{_DAY} )?{_CLOCK}(?: UTC)?", "<time>"),
        (r"\b\d{4}-\d\d-\d\d\b", "<date>"),
        (r"\b[0-9a-f]{12,}\b", "<hash>"),
        (r"\b[0-9a-f]{8}\b", "<short id>"),
        (r"\b(memory|memories|entry|entries|agent|user)(:| )\d+(?:(?:, | and )\d+)*", r"\1\2<id>"),
        (r"#\d+", "#<id>"),
        (r"\b(subject|new|token) \d+\b", r"\1 <number>"),
        (r"\b\d[\d,]* leaves\b", "<number> leaves"),
        (r"(— \S+ )[A-Za-z0-9+/]+=*", r"\1<signature>"),
        (r"\bstatement \d+\b", "statement <number>"),
        (r"\b\d+(?:\.\d+)? [GMk]B\b", "<size>"),
        (r"SQLite, <size>|PostgreSQL on .*", "<database>"),
        (r"/(agents|audit|attention|memories)/\d+", r"/\1/<id>"),
        (r"/\S*pytest-of-\S*/", "<folder>/"),
        (r"\b\d+\.\d(?=  +(?:none needed|[A-Z]+_API_KEY))", "<seconds>"),
    )
]

_VARYING = re.compile(r"(^|_)(id|ids|sequence|left)$|^(index|next|size)$")

_REPLACED_WHOLE = {"password", "proof", "checkpoint"}


def replaced_in_text(text: str) -> str:
    for pattern, word in _PATTERNS:
        text = pattern.sub(word, text)
    return text


def replaced(form: Any, name: str = "") -> Any:
    """The same form without what differs; numbers that name a row or run down become 0."""
    match form:
        case dict():
            return {replaced_in_text(str(key)): replaced(value, str(key)) for key, value in form.items()}
        case list():
            return [replaced(each, name) for each in form]
        case str():
            return f"<{name}>" if name in _REPLACED_WHOLE else replaced_in_text(form)
        case float() if name == "median_seconds":
            return 0.0
        case int() if not isinstance(form, bool) and _VARYING.search(name):
            return 0
    return form
