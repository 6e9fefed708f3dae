"""What goes over the wire: one stylesheet and one script that browsers keep, and packed pages without secrets."""

from __future__ import annotations

import gzip
import re

import pytest
from flask import Flask

from app.views import assets
from app.views.assets import Asset, bundle_scripts, bundle_sheets, load_assets
from app.views.icons import icon
from app.views.markup import budget_bar
from tests.support.factories import make_agent
from tests.views.conftest import Browser
from tests.views.site import make_subject
from tests.views.test_exceptions import granted

PACKED = {"Accept-Encoding": "gzip, deflate, br, zstd"}
"""As browsers ask."""


def test_every_sheet_and_script_of_ours_is_in_what_a_page_loads() -> None:
    """Whoever adds a file names it: a sheet in `whetstone.css`, a script in SCRIPTS or FILES."""
    sheets = {path.relative_to(assets.STATIC).as_posix() for path in assets.STATIC.rglob("*.css")} - {"whetstone.css"}
    scripts = {path.relative_to(assets.STATIC).as_posix() for path in assets.STATIC.rglob("*.js")}
    imported = re.findall(r'@import "([^"]+)"', (assets.STATIC / "whetstone.css").read_text())

    assert sheets == set(imported)
    assert scripts == {*assets.SCRIPTS, *(path for path in assets.FILES.values() if path.endswith(".js"))}


def test_the_stylesheet_keeps_layers_and_licences_and_names_no_file() -> None:
    sheet = bundle_sheets()
    start = '@charset "UTF-8";\n@layer pico{/*!\n * Pico CSS'

    assert sheet.startswith(start)
    assert "Licensed under MIT" in sheet
    assert sheet.count("@charset") == 1
    assert sheet.count("{") == sheet.count("}")
    assert sheet.index("@layer pico{") < sheet.index("--pico-icon-chevron: conic-gradient") < sheet.index(".topbar")
    assert not re.search(r"@import|url\((?!\"?data:)", sheet)
    comments = re.findall(r"/\*.*?\*/", sheet, re.S)
    assert [each for each in comments if not each.startswith("/*!")] == []


def test_the_stylesheet_says_once_how_icons_and_bars_are_drawn() -> None:
    """What stands on a page hundreds of times says only what it is."""
    sheet = bundle_sheets()
    drawn = {each: re.search(rf"\n{re.escape(each)} {{([^}}]*)}}", sheet) for each in (".icon", ".bar", ".bar-track")}

    assert re.fullmatch(
        r'<svg class="icon icon-check" viewBox="0 0 16 16" aria-hidden="true"><path [^>]*/></svg>', icon("check")
    )
    assert not re.search(r"height|rx=|stroke", budget_bar(3, 2))
    assert {
        name: found and [part.split(":")[0].strip() for part in found[1].split(";")][:-1]
        for name, found in drawn.items()
    } == {
        ".icon": [
            "flex",
            "width",
            "height",
            "vertical-align",
            "fill",
            "stroke",
            "stroke-width",
            "stroke-linecap",
            "stroke-linejoin",
        ],
        ".bar": ["width", "height"],
        ".bar-track": ["width", "rx", "fill", "stroke", "stroke-width"],
    }


def test_our_listeners_come_before_htmx_and_its_extension_with_it() -> None:
    script = bundle_scripts()

    assert script.index("watchStream();") < script.index("var htmx=") < script.rindex("hx-sse:connect")
    assert script.startswith("/*")
    assert '"use strict";' in script[:300]


def test_a_file_is_kept_for_good_under_the_digest_of_its_content(stranger: Browser) -> None:
    page = stranger.get("/sign-in").text
    named = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page)

    assert len(named) == 4
    assert "/static/" not in page
    for path in named:
        answer = stranger.get(path, headers=PACKED)
        plain = stranger.get(path, headers={"Accept-Encoding": "identity"})
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert (answer.headers["Content-Encoding"], answer.headers["Vary"]) == ("gzip", "Accept-Encoding")
        assert "Content-Encoding" not in plain.headers
        assert gzip.decompress(answer.data) == plain.data
        assert "Set-Cookie" not in answer.headers
    assert [Asset.of("a.js", text).address for text in (b"1", b"2")] == [
        "a-6b86b273ff34fce1.js",
        "a-d4735e3a265e16ee.js",
    ]


def test_a_page_of_another_version_gets_the_present_file_but_must_not_keep_it(stranger: Browser) -> None:
    answer = stranger.get("/assets/whetstone-0123456789abcdef.css")

    assert answer.data == load_assets()["whetstone.css"].body
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    ["whetstone.css", "app.js", "nothing-0123456789abcdef.css", "../app.js", "%2e%2e%2fapp%2f__init__.py", "%00"],
)
def test_nothing_else_is_served(stranger: Browser, path: str) -> None:
    assert stranger.get(f"/assets/{path}").status_code == 404
    assert stranger.get("/static/app.js").status_code == 404


def test_the_first_page_and_a_later_one_stay_within_their_bytes(web: Flask, admin: Browser) -> None:
    """Of what this process sends; `benchmarks/first_page.py` measures it in a browser."""
    for n in range(50):
        make_agent(f"agent {n}")
    sizes = [len(admin.get(path, headers=PACKED).data) for path in ("/", "/agents", "/audit")]

    files = sum(len(load_assets()[name].packed) for name in ("whetstone.css", "whetstone.js", "whetstone.svg"))
    assert max(sizes) <= 15_000
    assert files + sizes[0] <= 60_000


def test_pages_are_packed_and_never_of_one_length(admin: Browser) -> None:
    answers = [admin.get("/agents?query=tea", headers=PACKED) for _ in range(20)]

    assert {answer.headers["Content-Encoding"] for answer in answers} == {"gzip"}
    assert {answer.headers["Cache-Control"] for answer in answers} == {"no-store"}
    assert 'value="tea"' in gzip.decompress(answers[0].data).decode()
    assert len({len(answer.data) for answer in answers}) > 5
    assert "Content-Encoding" not in admin.get("/agents").headers


def test_what_holds_content_or_a_secret_is_never_packed(admin: Browser, stranger: Browser, worker: None) -> None:
    subject = make_subject()
    grant = granted(subject.agent, admin)
    content = admin.get(f"/exceptions/{grant.id}/ledger", headers=PACKED)
    other = make_agent("wren", model_id="openai/gpt-5")
    token = admin.post(f"/agents/{other.id}/tokens", {"name": "laptop", "scope": ["read"]}, headers=PACKED)
    others = [
        *(admin.get(path, headers=PACKED) for path in ("/agents.json", "/events/poll?topic=agents", "/agents/77")),
        stranger.get("/sign-in", headers=PACKED),
    ]

    assert (content.status_code, "blue" in content.text or "tea" in content.text) == (200, True)
    assert (token.status_code, 'id="token"' in token.text) == (201, True)
    for answer in (content, token, *others):
        assert "Content-Encoding" not in answer.headers, answer.request.path
