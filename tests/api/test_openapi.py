"""The OpenAPI document: complete, valid, and true of a running server, whatever is sent to it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, Phase, given, seed, settings

from app.api.operations import OPERATIONS
from tests.api.conftest import Door, issue, open_door
from tests.api.telling import CONVERSATION, ask_for_change, ask_for_token, ask_to_look, prove_statement
from tests.support.pages import Site, serving

pytestmark = pytest.mark.timeout(300)
"""Sweeps over everything: on a busy machine they need longer than any other test may."""

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its own imports
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import CHECKS, load_all_checks
    from schemathesis.core.failures import FailureGroup

LONG_RUN = bool(os.environ.get("WHETSTONE_LONG"))
EXAMPLES = 300 if LONG_RUN else 6
"""Of right requests, and as many of wrong ones, an operation."""

RIGHT = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
WRONG = (*RIGHT, "negative_data_rejection")

SUBJECTS = {"200", "201", "202"}


NAMES = [operation.name for operation in OPERATIONS]

NOTHING_TO_GET_WRONG = {"whoami", "get_context", "list_settings", "list_tokens", "export_bundle"}


KNOWN: dict[str, Callable[[Door], Any]] = {
    "memory_id": lambda door: door.save("Ann likes tea.")["id"],
    "refinement_id": lambda door: door("POST", "/refinements", {}).json["id"],
    "conversation_id": lambda door: door("POST", "/conversations", {"messages": CONVERSATION}).json["id"],
    "import_id": lambda door: door("POST", "/imports", {"data": "One line.", "format": "text"}).json["id"],
    "request_id": lambda door: ask_to_look(door.agent),
    "token_request_id": lambda door: ask_for_token(door.agent),
    "setting_request_id": lambda door: ask_for_change(door.agent),
    "public_id": lambda door: issue(door.agent).split("_")[1],
    "receipt_id": lambda door: prove_statement(door.agent),
}
"""Something of each kind that is there."""

RIGHT_BODIES: dict[str, dict[str, Any]] = {
    "hand_in_conversation": {"messages": CONVERSATION},
    "import_memories": {"data": "One line.", "format": "text"},
}
"""Where hardly any text of the right shape makes sense: one that does."""


@dataclass
class Trial:
    """Requests of one kind, and what has to be true of each answer."""

    mode: GenerationMode
    checks: tuple[str, ...]
    answered: set[tuple[str, int]] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "right requests" if self.is_right else "wrong requests"

    @property
    def is_right(self) -> bool:
        return self.mode is GenerationMode.POSITIVE

    def run(self, operation: Any, door: Door) -> None:
        """So many requests. What is named in an address is there, in right ones."""
        name = operation.definition.raw["operationId"]
        own = open_door(door.client, f"{door.agent.name}, {name}")
        own.save("Ann likes rum.")
        at = {place: find(own) for place, find in KNOWN.items() if f"{{{place}}}" in operation.path}

        @seed(20261116)
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=self.mode))
        def holds(case: Any) -> None:
            if self.is_right:
                case.path_parameters = {**(case.path_parameters or {}), **at}
            self._ask(case, own)

        holds()
        if self.is_right and name in RIGHT_BODIES:
            self._ask(operation.Case(body=RIGHT_BODIES[name], media_type="application/json"), own)

    def _ask(self, case: Any, own: Door) -> None:
        name = case.operation.definition.raw["operationId"]
        answer = case.call(headers={"Authorization": f"Bearer {own.token}"})
        self.answered.add((name, answer.status_code // 100))
        try:
            case.validate_response(answer, checks=CHECKS.get_by_names(self.checks))
        except FailureGroup as failed:
            self.problems.append(f"{name}: {failed}")


@pytest.fixture
def document(client: FlaskClient) -> dict[str, Any]:
    answer = client.get("/api/v1/openapi.json")
    assert answer.status_code == 200
    assert isinstance(answer.json, dict)
    return answer.json


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    web.extensions["settings"] = web.extensions["settings"].model_copy(update={"api_rate": "999999/second"})
    with serving(web) as made:
        yield made


def described(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, said in methods.items():
            yield path, method, said


def test_it_describes_every_operation_and_no_other(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    found = {(said["operationId"], method.upper(), path) for path, method, said in described(document)}
    assert found == {(each.name, each.method, f"/api/v1{each.path}") for each in OPERATIONS}


def test_each_says_what_it_is_for_what_it_takes_and_how_it_answers(document: dict[str, Any]) -> None:
    by_name = {each.name: each for each in OPERATIONS}
    for _, method, said in described(document):
        operation = by_name[said["operationId"]]
        assert said["description"] == operation.about
        assert len(said["summary"]) < 60
        answers = said["responses"]
        assert SUBJECTS & set(answers) == {str(status) for status in operation.statuses}
        assert {"401", "403", "422", "429", "503"} <= set(answers), operation.name
        assert ("413" in answers) == (method != "get")
        for status, answer in answers.items():
            assert set(answer["content"]) == {
                "application/problem+json" if int(status) >= 400 else "application/json"
            }, operation.name
        assert "WWW-Authenticate" in answers["401"]["headers"]
        assert "Retry-After" in answers["429"]["headers"]
        names = [(each["in"], each["name"]) for each in said["parameters"]]
        assert (("header", "Idempotency-Key") in names) == (method == "post")
        assert all(each["description"] for each in said["parameters"]), operation.name
        assert ("requestBody" in said) == (method != "get" and bool(operation.takes.model_fields))


def test_every_operation_needs_a_token(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    assert document["security"] == [{"token": []}]
    assert not [path for path, _, said in described(document) if said.get("security", document["security"]) == []]


def test_every_reference_leads_somewhere_and_every_shape_is_used(document: dict[str, Any]) -> None:
    used = set(references(document))
    assert used == {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        yield from ([part["$ref"]] if "$ref" in part else [])
        for each in part.values():
            yield from references(each)
    elif isinstance(part, list):
        for each in part:
            yield from references(each)


def test_it_can_be_asked_for_without_a_token_and_tells_of_nobody(document: dict[str, Any], door: Door) -> None:
    assert door.agent.name not in repr(document["paths"])


@pytest.mark.timeout(3600 if LONG_RUN else 180)
@pytest.mark.parametrize(
    "trial", [Trial(GenerationMode.POSITIVE, RIGHT), Trial(GenerationMode.NEGATIVE, WRONG)], ids=str
)
def test_it_is_true_of_a_running_server(site: Site, door: Door, trial: Trial) -> None:
    load_all_checks()
    schema = schemathesis.openapi.from_url(f"{site.url}/api/v1/openapi.json")
    for found in schema.get_all_operations():
        trial.run(found.ok(), door)

    assert not trial.problems, "\n\n".join(trial.problems)
    if trial.is_right:
        assert {name for name, kind in trial.answered if kind == 2} == set(NAMES)
    else:
        assert {name for name, kind in trial.answered if kind == 4} >= set(NAMES) - NOTHING_TO_GET_WRONG


def test_a_line_break_in_an_address_is_refused_like_any_other_stranger(site: Site, door: Door) -> None:
    for method, place in (("GET", "imports/a%0Ab"), ("GET", "no%0Asuch"), ("PUT", "settings/na%0Ame")):
        headers = {"Authorization": f"Bearer {door.token}"}
        answer = httpx.request(method, f"{site.url}/api/v1/{place}", headers=headers, json={"value": "x"})
        assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json"), place
        assert answer.json()["code"] == "not_found"
    assert httpx.get(f"{site.url}/no%0Asuch").headers["Content-Type"].startswith("text/html")
