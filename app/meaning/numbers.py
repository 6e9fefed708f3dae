"""Numbers, dates and times in one form each: 1,000 and 1000, $5 and 5 dollars, 6 pm and 18:00."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from app.meaning.specifics import Atom, SpecificKind

_ISO = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ](\d{2}):(\d{2}).*)?", re.DOTALL)
_SLASHED = re.compile(r"(\d{1,2})[/.](\d{1,2})[/.](\d{2,4})")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::\d{2})?([ap]m)?", re.IGNORECASE)
_HOUR = re.compile(r"(\d{1,2})([ap]m)", re.IGNORECASE)
_VERSION = re.compile(r"\d+(?:\.\d+){2,}")
_PLAIN_NUMBER = re.compile(r"([-−+]?)([$€£¥₹]?)(\d+(?:,\d{3})+|\d+)(?:[.,](\d+))?([A-Za-z%°µ²³]*)")
_PARTS = re.compile(r"[-–/:,]")
_SCALES = {"k": 3, "K": 3, "M": 6, "mn": 6, "mio": 6, "B": 9, "bn": 9}
_CURRENCIES = {"$": "dollar", "€": "euro", "£": "sterling", "¥": "yen", "₹": "rupee"}
_ORDINALS = {"st", "nd", "rd", "th"}
_LONGEST_SCALED = 15

SYMBOLS = {
    "%": "percent", "°": "degree", "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "kg": "kilogram",
    "mg": "milligram", "lb": "pound", "lbs": "pound", "oz": "ounce", "ml": "milliliter", "mph": "mph", "kmh": "kmh",
    "ms": "millisecond", "sec": "second", "s": "second", "min": "minute", "h": "hour", "hr": "hour", "hrs": "hour",
    "kb": "kilobyte", "mb": "megabyte", "gb": "gigabyte", "tb": "terabyte", "kw": "kilowatt", "kwh": "kwh",
    "hz": "hertz", "khz": "kilohertz", "mhz": "megahertz", "ghz": "gigahertz", "x": "times", "px": "px",
    "usd": "dollar", "eur": "euro", "gbp": "sterling", "m": "m", "g": "g", "d": "day", "c": "celsius",
    "f": "fahrenheit", "°c": "celsius", "°f": "fahrenheit", "ft": "foot", "mi": "mile", "l": "liter",
}  # fmt: skip
"""Units that are written alike in many languages."""

Found = tuple[SpecificKind, frozenset[Atom]]


def read_number(raw: str) -> list[Found]:
    """What a token that starts like a number says. Empty where it only looks like one."""
    if raw.isascii() and raw.isdigit():
        return [(SpecificKind.NUMBER, frozenset({number_atom(raw)}))]
    if match := _ISO.fullmatch(raw):
        year, month, day, hour, minute = match.groups()
        atoms = {number_atom(year), ("month", int(month)), number_atom(day)}
        return [(SpecificKind.DATE, frozenset(atoms | ({("time", int(hour), int(minute))} if hour else set())))]
    if match := _SLASHED.fullmatch(raw):
        return [(SpecificKind.DATE, frozenset({("date", *map(int, match.groups()))}))]
    if match := _TIME.fullmatch(raw):
        return [(SpecificKind.DATE, frozenset({time_atom(match[1], match[2], match[3] or "")}))]
    if match := _HOUR.fullmatch(raw):
        return [(SpecificKind.DATE, frozenset({time_atom(match[1], "0", match[2])}))]
    if _VERSION.fullmatch(raw):
        return [(SpecificKind.IDENTIFIER, frozenset({("id", raw)}))]
    if match := _PLAIN_NUMBER.fullmatch(raw):
        return _plain_number(match)
    parts = [part for part in _PARTS.split(raw) if part]
    return [found for part in parts for found in read_number(part)] if len(parts) > 1 else []


def _plain_number(match: re.Match[str]) -> list[Found]:
    sign, currency, whole, decimals, suffix = match.groups()
    value = canonical(whole.replace(",", ""), decimals or "")
    value = f"-{value}" if sign in ("-", "−") else value
    if suffix in _SCALES and len(value) <= _LONGEST_SCALED:
        value, suffix = canonical(*f"{Decimal(value).scaleb(_SCALES[suffix]):f}".partition(".")[::2]), ""
    unit = _CURRENCIES.get(currency, "") or ("" if suffix in _ORDINALS else SYMBOLS.get(suffix.lower(), suffix.lower()))
    if unit == "second" and not decimals and len(whole) == 4:
        unit = "decade"
    return [(SpecificKind.NUMBER, frozenset({number_atom(value, unit)}))]


def canonical(whole: str, decimals: str) -> str:
    sign = "-" if whole.startswith("-") else ""
    whole, decimals = whole.lstrip("-").lstrip("0") or "0", decimals.rstrip("0")
    return f"{sign}{whole}.{decimals}" if decimals else sign + whole


def number_atom(value: str, unit: str = "") -> Atom:
    if value[0] == "0" and value.isdigit():
        value = value.lstrip("0") or "0"
    return ("number", value, unit) if unit else ("number", value)


def time_atom(hour: str, minute: str, half: str) -> Atom:
    """`half`: am, pm or nothing."""
    read = int(hour)
    if half.lower().startswith("p") and read < 12:
        read += 12
    elif half.lower().startswith("a") and read == 12:
        read = 0
    return ("time", read, int(minute))


def total_of(words: list[str], values: Mapping[str, str]) -> str:
    """Of number words that stand side by side: two hundred five."""
    total, group = 0, Decimal(0)
    for word in words:
        value = Decimal(values[word])
        if value in (100, 1000, 1_000_000, 1_000_000_000):
            group = (group or Decimal(1)) * value
            if value > 100:
                total, group = total + int(group), Decimal(0)
        else:
            group += value
    whole, _, decimals = f"{total + group:f}".partition(".")
    return canonical(whole, decimals)
