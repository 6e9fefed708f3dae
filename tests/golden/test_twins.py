"""The JSON twins of pages, and what a browser is told as JSON: no key goes, is renamed or changes its type unseen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask

from tests.golden.conftest import Compare, Scene
from tests.support.canary import places_in
from tests.views.conftest import worker
from tests.views.site import NOBODY, PUBLIC, SIGN_IN, routes

__all__ = ["worker"]


def form_of(answer: Any) -> Any:
    """Status, kind and body: of a file of lines, each line."""
    kind = answer.headers["Content-Type"].split(";")[0]
    if kind.endswith("json"):
        body: Any = json.loads(answer.text)
    else:
        body = [json.loads(line) if line.startswith("{") else line for line in answer.text.splitlines()]
    return {"status": answer.status_code, "type": kind, "body": body}


@pytest.mark.usefixtures("worker")
def test_every_twin_of_a_page(scene: Scene, web: Flask, as_json: Compare) -> None:
    forms: dict[str, Any] = {}
    of_life = {
        "agent_id": str(scene.life.agent.id),
        "refinement_id": scene.life.refinement.id,
        "rollback_id": scene.life.rollback_id,
        "entry_id": str(scene.life.refinement.snapshot_entry_id),
        "exception_id": scene.looks["ledger"].id,
    }
    for rule in routes(web, "GET", without=PUBLIC | SIGN_IN):
        if not rule.rule.endswith((".json", ".jsonl", ".csv")):
            continue
        for subject, values in (("subject", {}), ("life", of_life)):
            if rule.endpoint == "exceptions.history_json":
                values = {"exception_id": scene.looks["history"].id}
            if values and not rule.arguments:
                continue
            answer = scene.owner.get(scene.subject.path(rule, **values), buffered=True)
            forms[f"{rule.endpoint} {subject}"] = form_of(answer)
    assert len(forms) > 40
    assert {name: form["status"] for name, form in forms.items() if form["status"] >= 500} == {}
    looked = {"exceptions.ledger_json life", "exceptions.history_json life", "exceptions.history_json subject"}
    assert {name for name, form in forms.items() if places_in(str(form))} == looked
    as_json(forms)


def test_every_end_of_a_refinement(scene: Scene, as_json: Compare) -> None:
    forms = {
        name: form_of(scene.owner.get(f"/refinements/{refinement.id}.json"))
        for name, refinement in scene.refinements().items()
    }
    assert len({name.split("-")[0] for name in forms}) >= 6
    as_json(forms)


def test_refusals_to_who_asks_for_json(scene: Scene, as_json: Compare) -> None:
    wants = {"headers": {"Accept": "application/json"}}
    agent = scene.life.agent.id
    answers = {
        "no such page": scene.owner.get("/nowhere", **wants),
        "no such agent": scene.owner.get("/agents/987654321.json", **wants),
        "no such refinement": scene.owner.get(f"/refinements/{NOBODY}.json", **wants),
        "a wrong method": scene.owner.client.put("/agents", **wants),
        "no CSRF token": scene.owner.client.post(f"/agents/{agent}/pause", **wants),
        "a guard": scene.owner.post(f"/refinements/{scene.life.later.id}/rollback", **wants),
    }
    as_json({name: form_of(answer) for name, answer in answers.items()})
