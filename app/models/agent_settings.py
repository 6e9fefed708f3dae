"""An agent's settings: which there are, what they are unless set, and what may be written into them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from flask import current_app

from app.config import MAX_RECALL_PROBES, OFFLINE_MODEL, READS_NOTHING, ReaderAction, Settings
from app.errors import Invalid
from app.keynames import may_hold_a_key
from app.modelnames import may_be_asked
from app.values.text import clean_prompt

DEFAULT_REFINEMENT_PROMPT = (
    "De-duplicate only. A memory is redundant ONLY if another memory already carries the same specific moment, quote, "
    "or insight. Tighten phrasing within individual memories if possible. When uncertain, do nothing. "
    "Bias toward completing with zero operations."
)
DEFAULT_REFINEMENT_THRESHOLD = Decimal("0.75")

DEFAULT_REFLECTION_PROMPT = (
    "Keep what you would miss tomorrow: what was promised, what you learnt about the people you talk with, what "
    "changed, and how it felt. One moment a memory, in your own words, with its names, dates and quotes. What matters "
    "for the coming days belongs in your journal; only what should stay with you for good is a core memory. "
    "When in doubt, leave it out."
)
"""What steers a conversation's memories, unless the agent has a `reflection_prompt` of its own."""

DEFAULT_MEMORY_REFLECTION_PROMPT = (
    "Look back over your journal of the last days. Promote an entry only if you will still want to know it in a year, "
    "because of who you are, what you promised or whom you care for, and only if no core memory of yours says it "
    "already. Let everyday entries fade: that is what a journal is for. Promoting nothing is normal and good."
)
"""What steers the daily promotion, unless the agent has a `memory_reflection_prompt` of its own."""

ENDPOINT = ("model_id", "api_base", "api_key_env")
"""Which model is asked, and where. With the prompts, it is what a statement about an agent's model says."""

SECOND_READER = ("second_reader_model", "second_reader_api_base", "second_reader_api_key_env")
"""Which model reads once more what a refinement changed, and where: it, too, is sent memories."""

PROMPTS = ("system_prompt", "reflection_prompt", "memory_reflection_prompt", "refinement_prompt")

STATED_SETTINGS = (*ENDPOINT, *SECOND_READER, *PROMPTS)
"""All that a statement about an agent's model says: what decides who reads its memories, and what its YES is worth."""

NOT_A_KEY = (
    "The variable that is named for the API key may not be used for one: its value would go to the model's address. "
    "The operator says in WHETSTONE_API_KEY_ENVS which may."
)

NOT_LISTED = (
    "This model, at this address, is none that the operator of this installation allows. "
    "WHETSTONE_MODELS lists those that may be asked."
)

CONFIGURATION = (
    *("name", "model_id", "api_base", "api_key_env", *PROMPTS),
    *("refinement_threshold", "core_token_budget", "active"),
    *("recall_probes", "max_confirmed_losses", *SECOND_READER, "second_reader_action"),
)


def operator_settings() -> Settings:
    """The operator's settings, of which some bound an agent's."""
    found: Settings = current_app.extensions["settings"]
    return found


def clean_settings(fields: dict[str, Any]) -> dict[str, Any]:
    """All of `fields` as they are stored. Raises Invalid, also for a name that is no setting."""
    unknown = set(fields) - set(CONFIGURATION)
    if unknown:
        raise Invalid(f"Unknown settings: {', '.join(sorted(unknown))}.")
    return {field: clean_setting(field, value) for field, value in fields.items()}


def is_listed_model(model_id: str, api_base: str | None) -> bool:
    """Whether the operator allows it; `whetstone/offline` asks nobody, and always may."""
    return model_id == OFFLINE_MODEL or may_be_asked(model_id, api_base, operator_settings().models)


def check_listed_model(model_id: str, api_base: str | None) -> None:
    """Raises Invalid."""
    if not is_listed_model(model_id, api_base):
        raise Invalid(NOT_LISTED)


def check_listed_models(settings: Mapping[str, Any], changed: Collection[str]) -> None:
    """For `settings` as they would be: whether the operator allows what of models and addresses is `changed`, of the
    second reader's too. Raises Invalid."""
    if {"model_id", "api_base"} & {*changed}:
        check_listed_model(settings["model_id"], settings["api_base"])
    reader = settings["second_reader_model"]
    if reader is not None and {"second_reader_model", "second_reader_api_base"} & {*changed}:
        check_listed_model(reader, settings["second_reader_api_base"])


def clean_setting(field: str, value: Any) -> Any:
    """One setting as it is stored; names are checked elsewhere. Raises Invalid."""
    if field in PROMPTS:
        return clean_prompt(value, what=field)
    match field:
        case "refinement_threshold":
            return parse_threshold(value)
        case "core_token_budget":
            return _clean_budget(value)
        case "api_base" | "api_key_env" | "second_reader_api_base" | "second_reader_api_key_env":
            return _clean_endpoint(field, value)
        case "active":
            return bool(value)
        case "recall_probes":
            return _clean_count(value, "recall probes", MAX_RECALL_PROBES) or 0
        case "max_confirmed_losses":
            return _clean_count(value, "confirmed losses", operator_settings().max_confirmed_losses)
        case "second_reader_model":
            return _clean_reader(value)
        case "second_reader_action":
            return _clean_action(value)
        case "model_id":
            return _clean_model(value)
        case _:
            return value


def parse_threshold(value: object) -> Decimal | None:
    """An exact threshold within the operator's range, or None for the default. Raises Invalid with the range."""
    if value is None or value == "":
        return None
    low = operator_settings().min_threshold
    allowed = f"it must be a number from {low:.2f} to 1.00 with at most four digits after the point"
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise Invalid(f"The threshold is not a number: {allowed}.")
    written = str(value).strip()
    try:
        threshold = Decimal(written if written.isascii() and "_" not in written else "")
    except InvalidOperation:
        raise Invalid(f"The threshold is not a number: {allowed}.") from None
    if not threshold.is_finite() or not low <= threshold <= 1 or threshold != round(threshold, 4):
        raise Invalid(f"The threshold is out of range: {allowed}.")
    return threshold.quantize(Decimal("0.0001"))


def as_json(value: object) -> object:
    """A setting as the audit log and programs get it."""
    return str(value) if isinstance(value, Decimal) else value


def _clean_budget(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000_000:
        raise Invalid("The budget must be a whole number of tokens from 1 to 10,000,000.")
    return value


def _clean_model(value: object) -> str:
    model = value.strip() if isinstance(value, str) else ""
    if not model or len(model) > 200 or not model.isprintable() or " " in model or "://" in model:
        raise Invalid("The model must be a LiteLLM name such as 'openai/gpt-5', or 'whetstone/offline'.")
    return model


def _clean_count(value: object, what: str, high: int) -> int | None:
    """None for the default."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise Invalid(f"The number of {what} must be a whole number from 0 to {high}.")
    return value


def _clean_reader(value: object) -> str | None:
    if value is None or value == "":
        return None
    model = _clean_model(value)
    if model == OFFLINE_MODEL:
        raise Invalid(f"{READS_NOTHING}. Name a language model, or none.")
    return model


def _clean_action(value: object) -> str | None:
    """None for the operator's, which an agent's own may only make stricter."""
    if value is None or value == "":
        return None
    if operator_settings().second_reader_action == ReaderAction.REVERSE and value != ReaderAction.REVERSE:
        raise Invalid("The second reader's action must be 'reverse': the operator of this installation set that.")
    if not isinstance(value, str) or value not in list(ReaderAction):
        raise Invalid("The second reader's action must be 'flag' or 'reverse'.")
    return str(value)


def _clean_endpoint(field: str, value: object) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        raise Invalid(f"The {field} must be text without spaces and control characters.")
    if field.endswith("api_base") and not (value.startswith(("http://", "https://")) and len(value) <= 500):
        raise Invalid("The API base must be an address that starts with http:// or https://.")
    if field.endswith("api_key_env") and not (
        value.replace("_", "A").isalnum() and value.isascii() and len(value) <= 120
    ):
        raise Invalid("The API key is given as the NAME of an environment variable, never as the key itself.")
    if field.endswith("api_key_env") and not may_hold_a_key(value, operator_settings().api_key_envs):
        raise Invalid(NOT_A_KEY)
    return value
