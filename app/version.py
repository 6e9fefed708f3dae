"""The version of this Whetstone, as its pyproject.toml says."""

from __future__ import annotations

import tomllib
from functools import cache

from app.config import ROOT


@cache
def app_version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])
