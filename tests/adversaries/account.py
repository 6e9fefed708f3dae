"""An account as one of its people has it in a browser: pages, links, forms and buttons, found as a browser finds them.

What is found is tried, with values that would suit an attacker best; every answer is searched.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from io import BytesIO
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

from flask import Flask, request, request_started
from werkzeug.exceptions import HTTPException
from werkzeug.test import TestResponse

from tests.views.conftest import Browser

TOKEN = re.compile(r"whet_[0-9a-f]{16}_[A-Za-z0-9_-]+")
HOST = "http://localhost"

_numbers = count(1)

_ICON = re.compile(r"<svg.*?</svg>", re.DOTALL)
"""Most of a page's tags, and they lead nowhere."""

MOST_ALIKE = 1
"""Links to a route with the same parameters, and forms with the same fields, that are tried at a time."""

Kind = tuple[str, ...]

Visited = set[tuple[str, str]]
"""Endpoint and method."""


@contextmanager
def visits(web: Flask) -> Iterator[Visited]:
    """What is asked for in here, as the web process itself sees it."""
    found: Visited = set()

    def note(_: Flask, **__: object) -> None:
        found.add((request.endpoint or "", request.method))

    with request_started.connected_to(note, web):
        yield found


def all_routes(web: Flask) -> Visited:
    methods = ((rule.endpoint, method) for rule in web.url_map.iter_rules() for method in rule.methods or ())
    return {(endpoint, method) for endpoint, method in methods if method not in ("HEAD", "OPTIONS")}


@dataclass(frozen=True)
class Control:
    """A field of a form. `choices` are the values that it offers, if it offers some."""

    name: str
    kind: str
    value: str
    choices: tuple[str, ...] = ()


@dataclass
class FoundForm:
    """`buttons` are the addresses that it can be sent to."""

    method: str
    action: str
    controls: list[Control] = field(default_factory=list)
    buttons: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.controls]

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys([self.action, *self.buttons]))

    def fillings(self, wishes: Mapping[str, str], file: bytes) -> Iterator[dict[str, Any]]:
        """All boxes checked and all texts as wished; then, unless it is a filter, each other choice of a list."""
        first: dict[str, Any] = {}
        for control in self.controls:
            if control.kind == "checkbox":
                first.setdefault(control.name, []).append(control.value)
            elif control.kind == "hidden":
                first[control.name] = control.value
            elif control.kind != "file":
                first[control.name] = wishes.get(control.name, control.value or wishes["*"]).format(next(_numbers))
        files = [control.name for control in self.controls if control.kind == "file"]
        acts = self.controls if self.method != "GET" else []
        others = [(each.name, choice) for each in acts for choice in each.choices]
        for name, choice in [("", ""), *others]:
            filled = first | ({name: choice} if name else {})
            yield filled | {each: (BytesIO(file), "wren.jsonl") for each in files}


class PageReader(HTMLParser):
    """Links, forms, and whatever htmx would send, of one page or part of one."""

    def __init__(self, path: str, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[FoundForm] = []
        self._path = path
        self._by_id: dict[str, FoundForm] = {}
        self._open: FoundForm | None = None
        self._select: tuple[FoundForm | None, str] = (None, "")
        self._options: list[tuple[str, bool]] = []
        self._waiting: list[tuple[str, Control]] = []
        self.feed(_ICON.sub("", html))
        self.close()
        for form_id, control in self._waiting:
            self._by_id[form_id].controls.append(control)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        for name in ("href", "hx-get", "sse-connect", "src"):
            if tag != "link" and name in said:
                self._link(said[name])
        for verb in ("post", "put", "patch", "delete"):
            if f"hx-{verb}" in said and tag != "form":
                self.forms.append(FoundForm(verb.upper(), self._whole(said[f"hx-{verb}"])))
        match tag:
            case "form" if said.get("method") != "dialog":
                self._open = FoundForm(said.get("method", "get").upper(), self._whole(said.get("action", "")))
                self._by_id[said.get("id", "")] = self._open
                self.forms.append(self._open)
            case "input" | "textarea" if said.get("name"):
                self._add(said, Control(said["name"], said.get("type", "text"), said.get("value", "")))
            case "select":
                self._select, self._options = (self._open, said.get("name", "")), []
            case "option":
                self._options.append((said.get("value", ""), "selected" in said))
            case "button" if "formaction" in said and self._open:
                self._open.buttons.append(self._whole(said["formaction"]))
            case "button" if said.get("name"):
                self._add(said, Control(said["name"], "hidden", said.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        form, name = self._select
        if tag == "select" and form is not None:
            values = tuple(value for value, _ in self._options)
            chosen = next((value for value, selected in self._options if selected), values[0] if values else "")
            form.controls.append(Control(name, "select", chosen, values))

    def _add(self, said: Mapping[str, str], control: Control) -> None:
        if "form" in said:
            self._waiting.append((said["form"], control))
        elif self._open is not None:
            self._open.controls.append(control)

    def _whole(self, address: str) -> str:
        return urljoin(f"{HOST}{self._path}", address).removeprefix(HOST)

    def _link(self, address: str) -> None:
        whole = self._whole(address)
        if whole.startswith("/"):
            self.links.append(whole.partition("#")[0])


@dataclass
class OpenAccount:
    """Somebody who opens and presses everything; of links that lead to one route with the same parameters, and of forms
    with the same fields, one each time.

    `check` judges each answer; `tokens` are all that any of them showed. `wishes` are what is typed, by the field's
    name, `*` into what has none, `{}` in it is a new number; `file` is what is uploaded. `spared` are ends of addresses
    to which nothing is sent.
    """

    browser: Browser
    check: Callable[[TestResponse], None]
    wishes: Mapping[str, str]
    file: bytes
    spared: tuple[str, ...] = ()
    tokens: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    forms: dict[str, FoundForm] = field(default_factory=dict)

    def walk(self, *starts: str) -> int:
        """Every page from these on by every link; returns how many there were."""
        waiting, known, alike = list(starts), set(starts), Counter[Kind]()
        while waiting:
            for link in self.open(waiting.pop()):
                kind = self._kind_of(link)
                if link not in known and alike[kind] < MOST_ALIKE:
                    alike[kind] += 1
                    known.add(link)
                    waiting.append(link)
        return len(known)

    def open(self, path: str) -> list[str]:
        """Returns its links; its forms wait to be sent."""
        return self._read(self.browser.get(path, buffered=True))

    def submit_all(self) -> int:
        """Each form that was found and not sent yet, in each way; and those which that shows. Returns how many."""
        count, alike = 0, Counter[Kind]()
        while waiting := [key for key in self.forms if key not in self.sent]:
            for key in waiting:
                self.sent.add(key)
                form = self.forms[key]
                kind = self._kind_of(form.action, form.method, *form.names)
                if alike[kind] < MOST_ALIKE:
                    alike[kind] += 1
                    count += self._submit(form)
        return count

    def send(self, path: str, form: Mapping[str, Any]) -> None:
        """A form that no page has now."""
        self._judge(self.browser.post(path, dict(form), buffered=True))

    def _submit(self, form: FoundForm) -> int:
        count = 0
        for target in form.targets:
            if form.method != "GET" and urlsplit(target).path.endswith(self.spared):
                continue
            for filled in form.fillings(self.wishes, self.file):
                if form.method == "GET":
                    self._read(self.browser.get(target, query_string=filled, buffered=True))
                else:
                    answer = self.browser.client.open(
                        target, method=form.method, data=filled | {"csrf_token": self.browser.token}, buffered=True
                    )
                    self._read(answer)
                count += 1
        return count

    def _judge(self, answer: TestResponse) -> None:
        assert answer.status_code < 500 or answer.status_code == 503, f"{answer.request.path}: {answer.status_code}"
        self.check(answer)
        self.tokens |= set(TOKEN.findall(unescape(answer.text)))

    def _read(self, answer: TestResponse) -> list[str]:
        self._judge(answer)
        if answer.status_code in (301, 302, 303):
            return self.open(urljoin(f"{HOST}{answer.request.path}", answer.location).removeprefix(HOST))
        if answer.mimetype != "text/html":
            return []
        page = PageReader(answer.request.path, answer.text)
        for form in page.forms:
            self.forms.setdefault(self._key(form), form)
        return page.links

    def _kind_of(self, address: str, method: str = "GET", *names: str) -> Kind:
        url = urlsplit(address)
        try:
            endpoint, _ = self.browser.client.application.url_map.bind("localhost").match(url.path, method)
        except HTTPException:
            endpoint = url.path
        return endpoint, method, *sorted({*names, *dict(parse_qsl(url.query))})

    def _key(self, form: FoundForm) -> str:
        """Two forms that send the same to the same are one, whatever is typed in them already."""
        said = {each.name: each.value if each.kind == "hidden" else "" for each in form.controls}
        kept = {name: value for name, value in said.items() if name != "csrf_token" and not name.startswith("was_")}
        return json.dumps([form.method, form.targets, kept])
