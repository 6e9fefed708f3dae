"""Forms of an agent's settings: read as text, checked field by field, given back as typed with what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flask import current_app

from app.authoring.fields import DEFAULTS
from app.config import MAX_RECALL_PROBES, ReaderAction
from app.errors import Invalid, WhetstoneError
from app.models.agent import AgentNameTaken
from app.models.agent_settings import SECOND_READER, clean_setting, operator_settings
from app.models.settings_request import ASKED_SETTINGS
from app.values.text import clean_name

AGENT_FIELDS = (
    "name",
    "model_id",
    "api_base",
    "api_key_env",
    "core_token_budget",
    "refinement_threshold",
    "system_prompt",
)

MEANING_FIELDS = ("recall_probes", "max_confirmed_losses", *SECOND_READER, "second_reader_action")

SETTINGS_FIELDS = (
    *AGENT_FIELDS,
    *("refinement_prompt", "reflection_prompt", "memory_reflection_prompt"),
    *MEANING_FIELDS,
)


@dataclass(frozen=True)
class Form:
    """`typed` is what stands in the fields, and `errors` are the sentences beside them.

    `marks` are short digests of what the fields for ASKED_SETTINGS held when the page was loaded: what nobody touched
    is not saved, so that an old page takes nothing back that was changed meanwhile.
    """

    names: Sequence[str]
    typed: Mapping[str, str]
    errors: Mapping[str, str] = field(default_factory=dict)
    general: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, names: Sequence[str]) -> Form:
        return cls(names, {"core_token_budget": str(current_app.extensions["settings"].default_budget)})

    @classmethod
    def read(cls, names: Sequence[str], sent: Mapping[str, str]) -> Form:
        typed = {name: sent.get(name, "").replace("\r\n", "\n") for name in names}
        return cls(names, typed, marks={name: sent[f"was_{name}"] for name in names if f"was_{name}" in sent})

    @classmethod
    def of(cls, names: Sequence[str], configuration: Mapping[str, Any]) -> Form:
        """Filled with what is set now."""
        set_now = {name: configuration.get(name) for name in names}
        typed = {name: "" if value is None else str(value) for name, value in set_now.items()}
        return cls(names, typed, marks={name: _mark_of(typed[name]) for name in names if name in ASKED_SETTINGS})

    @property
    def floor(self) -> str:
        return f"{current_app.extensions['settings'].min_threshold:.2f}"

    @property
    def default_threshold(self) -> str:
        return f"{current_app.extensions['settings'].default_threshold:.2f}"

    @property
    def most_probes(self) -> int:
        return MAX_RECALL_PROBES

    @property
    def most_losses(self) -> int:
        return operator_settings().max_confirmed_losses

    @property
    def operators_reader(self) -> str:
        """The model that the operator has set for all; empty for none."""
        return operator_settings().second_reader_model

    @property
    def reader_actions(self) -> list[tuple[str, str]]:
        """What there is to choose, with its words."""
        operators = operator_settings().second_reader_action
        choices = [("", f"The operator's: {operators}"), *((each, each) for each in ReaderAction)]
        return [choice for choice in choices if operators == ReaderAction.FLAG or choice[0] != ReaderAction.FLAG]

    @property
    def defaults(self) -> Mapping[str, str]:
        """Of the prompts that have one."""
        return DEFAULTS

    @property
    def untouched(self) -> set[str]:
        """The fields that are as they were when the page was loaded, of those that are marked."""
        return {name for name, mark in self.marks.items() if _mark_of(self.typed[name]) == mark}

    def checked_values(self) -> dict[str, Any]:
        """What may be saved, less what nobody touched. Raises `Wrong` with every field that can't be."""
        values = {name: _parse_field(name, self.typed[name]) for name in self.names}
        errors: dict[str, str] = {}
        for name, value in values.items():
            try:
                clean_name(value) if name == "name" else clean_setting(name, value)
            except Invalid as error:
                errors[name] = error.sentence
        if errors:
            raise Wrong(errors)
        return {name: value for name, value in values.items() if name not in self.untouched}

    def blame(self, error: WhetstoneError) -> Form:
        """The same form with what was wrong: beside its fields, or above them all."""
        if isinstance(error, Wrong):
            return replace(self, errors=error.errors)
        if isinstance(error, AgentNameTaken):
            return replace(self, errors={"name": error.sentence})
        return replace(self, general=error.sentence)


class Wrong(Invalid):
    """Some fields can't be saved as they are."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(" ".join(errors.values()))
        self.errors = errors


def _mark_of(typed: str) -> str:
    return hashlib.sha256(typed.strip().encode(errors="surrogatepass")).hexdigest()[:16]


def _parse_field(name: str, typed: str) -> Any:
    if name in ("core_token_budget", "recall_probes", "max_confirmed_losses"):
        digits = typed.strip().replace(",", "").replace(" ", "")
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else typed.strip()
    if name in ("name", "model_id"):
        return typed
    return typed.strip() or None
