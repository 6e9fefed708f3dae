"""Addresses that are made once a process are the router's own, below whatever the server puts before all paths."""

from __future__ import annotations

import pytest
from flask import Flask, render_template_string, url_for

from app.views.addresses import list_url, page_url, row_url

NUMBER = "8f14e45f-ceea-467f-a0e6-4b6f3f4a3f5e"
IN_TEMPLATES = "{{ url_for('agents.show', agent_id=number) }} {{ url_for('agents.index') }}"


def test_a_page_without_arguments_has_the_address_that_the_router_makes(web: Flask) -> None:
    pages = [rule.endpoint for rule in web.url_map.iter_rules() if not rule.arguments]
    with web.test_request_context("/"):
        assert [page_url(each) for each in pages] == [url_for(each) for each in pages]
        assert [page_url(each) for each in pages] == [url_for(each) for each in pages]
    assert len(pages) > 40


def test_the_same_page_has_another_address_below_another_prefix(web: Flask) -> None:
    for prefix in ("", "/whetstone", "", "/other", "/whetstone"):
        with web.test_request_context("/", environ_overrides={"SCRIPT_NAME": prefix}):
            assert page_url("agents.index") == url_for("agents.index") == f"{prefix}/agents"
            assert row_url("agents.show", "agent_id", 7) == f"{prefix}/agents/7"
            assert render_template_string(IN_TEMPLATES, number=7) == f"{prefix}/agents/7 {prefix}/agents"


def test_however_many_prefixes_there_are_few_are_kept(web: Flask) -> None:
    for number in range(100):
        with web.test_request_context("/", environ_overrides={"SCRIPT_NAME": f"/{number}"}):
            assert page_url("agents.index") == f"/{number}/agents"
    assert len(web.extensions["addresses"]) <= 8


@pytest.mark.parametrize("given", [NUMBER, NUMBER.upper(), "a/../b", "../../agents", "é", '"><b>', "%2e%2e", " "])
def test_a_template_writes_any_id_as_the_router_does(web: Flask, given: str) -> None:
    with web.test_request_context("/"):
        written = "{{ url_for('agents.index', agent_id=text)|safe }}"
        assert render_template_string(written, text=given) == url_for("agents.index", agent_id=given)


@pytest.mark.parametrize("typed", ["ann", "a b+c", "é&=?#", "'()*,/:;?@!$", '"><script>'])
def test_a_list_with_filters_has_the_address_that_the_router_makes(web: Flask, typed: str) -> None:
    with web.test_request_context("/"):
        assert list_url("agents.index", query=typed, sort="-name") == url_for("agents.index", query=typed, sort="-name")
        assert list_url("agents.index") == url_for("agents.index")
