"""What a text says that a paraphrase must not lose: its specifics, and which of them another text lacks.

Pure functions over texts: no rows, no settings, no model. What `missing` finds is asked about; it never decides that
two texts mean the same. docs/meaning.md explains it by examples.
"""

from app.meaning.answers import says_expected
from app.meaning.comparison import compare, missing, missing_of_sources
from app.meaning.reading import extract
from app.meaning.specifics import ChangeKind, Comparison, Specific, SpecificKind, Specifics

__all__ = [
    "ChangeKind",
    "Comparison",
    "Specific",
    "SpecificKind",
    "Specifics",
    "compare",
    "extract",
    "missing",
    "missing_of_sources",
    "says_expected",
]
