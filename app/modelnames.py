"""Models and addresses that an agent may have: the operator lists them in WHETSTONE_MODELS, else all are allowed.

A pattern is a model's name, in which `*` stands for anything, alone or with `@` and an address: `openai/*` allows a
provider at its own address only, `ollama/*@http://127.0.0.1:11434` one at that address and below it, `a/*@*` at any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

USUAL_KEYS: Mapping[str, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
    "cohere": "COHERE_API_KEY",
    "deepinfra": "DEEPINFRA_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "fireworks_ai": "FIREWORKS_AI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "nvidia_nim": "NVIDIA_NIM_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "perplexity": "PERPLEXITYAI_API_KEY",
    "together_ai": "TOGETHERAI_API_KEY",
    "xai": "XAI_API_KEY",
}
"""By provider, the variable that LiteLLM reads its key from where nobody named one; of the common ones with one key."""

_MODEL = re.compile(r"[^\s@\[\]?]{1,200}")
ANY = "*"


def is_model_pattern(text: str) -> bool:
    """Whether the operator may list it."""
    model, has_address, address = text.partition("@")
    if not _MODEL.fullmatch(model) or "://" in model:
        return False
    return not has_address or address == ANY or _is_address(address)


def may_be_asked(model_id: str, api_base: str | None, patterns: tuple[str, ...] | None) -> bool:
    """Whether an agent may have this model at this address; None for the provider's own. `patterns` None: all may."""
    return patterns is None or any(_fits(model_id, api_base, each) for each in patterns)


def usual_key_of(model_id: str) -> str | None:
    """Of `openai/gpt-5`: OPENAI_API_KEY. None for a provider that has none or that is not known here."""
    provider, slash, _ = model_id.partition("/")
    return USUAL_KEYS.get(provider) if slash else None


def _fits(model_id: str, api_base: str | None, pattern: str) -> bool:
    model, _, address = pattern.partition("@")
    if not fnmatchcase(model_id, model):
        return False
    if api_base is None:
        return address in ("", ANY)
    return address == ANY or (bool(address) and _is_below(api_base, address))


def _is_below(api_base: str, address: str) -> bool:
    """Host and port are compared as such: what only begins with the same letters is another server."""
    try:
        given, listed = urlsplit(api_base), urlsplit(address)
        same = (given.scheme, given.netloc.lower(), given.port) == (listed.scheme, listed.netloc.lower(), listed.port)
    except ValueError:
        return False
    listed_path = listed.path.rstrip("/")
    is_inside = given.path.rstrip("/") == listed_path or given.path.startswith(f"{listed_path}/")
    return same and is_inside and ".." not in given.path and "\\" not in api_base


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    is_plain = text.isprintable() and not set(text) & set("*?[]@ \\") and not parts.query and not parts.fragment
    return is_plain and parts.scheme in ("http", "https") and bool(host)
