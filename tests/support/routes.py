"""The routes of all apps of a run, compiled once: half of what a web app costs, and the same for every test."""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Any

from werkzeug.routing import Map, Rule, RuleFactory
from werkzeug.routing.matcher import StateMachineMatcher

_compiled: dict[tuple[object, ...], tuple[Map, list[Rule]]] = {}
"""By all that a map is made of; its rules with it, so that no other rule gets the id of one of them."""

_rules: dict[tuple[object, ...], Rule] = {}
"""By all that a rule is made of."""

_one_at_a_time = RLock()


def shared_rule(rule: str, **made_of: Any) -> Rule:
    """One for all apps: none of them binds it."""
    methods = made_of.pop("methods", None)
    key = (rule, None if methods is None else frozenset(methods), repr(sorted(made_of.items())))
    if key not in _rules:
        _rules[key] = Rule(rule, methods=methods, **made_of)
    return _rules[key]


class SharedMap(Map):
    """A map that looks for the compiled one of the same rules when it is first asked for a way."""

    def __init__(self, rules: Iterable[RuleFactory] | None = None, **settings: Any) -> None:
        self._added: list[Rule] = []
        self._found: Map | None = None
        self._settings = settings
        super().__init__(rules, **settings)

    def add(self, rulefactory: RuleFactory) -> None:
        """The rules themselves are never bound: others of the same fields are, in the compiled map."""
        self._added.extend(rulefactory.get_rules(self))
        self._found = None

    def update(self) -> None:
        """A compiled map is in order already."""

    @property
    def _matcher(self) -> StateMachineMatcher:
        return self._compiled()._matcher

    @_matcher.setter
    def _matcher(self, empty: StateMachineMatcher) -> None:
        """What the base class begins with is not needed."""

    @property
    def _rules_by_endpoint(self) -> dict[Any, list[Rule]]:
        return self._compiled()._rules_by_endpoint

    @_rules_by_endpoint.setter
    def _rules_by_endpoint(self, empty: dict[Any, list[Rule]]) -> None:
        """As for the matcher."""

    def _compiled(self) -> Map:
        with _one_at_a_time:
            if self._found is None:
                settings = {**self._settings, "converters": self.converters}
                key = (repr(settings), *map(id, self._added))
                if key not in _compiled:
                    _compiled[key] = _compile(self._added, settings), self._added
                self._found, _ = _compiled[key]
            return self._found


def _compile(rules: list[Rule], settings: dict[str, Any]) -> Map:
    compiled = Map(**settings)
    for rule in rules:
        own = rule.empty()
        if hasattr(rule, "provide_automatic_options"):
            own.provide_automatic_options = rule.provide_automatic_options
        compiled.add(own)
    compiled.update()
    return compiled
