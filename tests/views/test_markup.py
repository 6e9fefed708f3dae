"""Small pieces of pages: what is filled in is escaped, and bars say in words what they draw."""

from __future__ import annotations

import pytest

from app.views.markup import budget_bar


@pytest.mark.parametrize(
    ("used", "tone", "width"),
    [(0, "ok", "0.00"), (899, "ok", "29.97"), (900, "warn", "30.00"), (1_000, "warn", "33.33")],
)
def test_a_bar_turns_to_a_warning_at_nine_tenths_of_its_budget(used: int, tone: str, width: str) -> None:
    drawn = budget_bar(used, 1_000)
    assert f'class="budget budget-{tone}"' in drawn
    assert f'class="bar-fill" width="{width}%"' in drawn
    assert f'aria-label="Core memory: {used:,} of 1,000 tokens"' in drawn
    assert f"<b>{used:,}</b> of 1,000 tokens</span>" in drawn


def test_a_bar_over_its_budget_says_how_many_times() -> None:
    drawn = budget_bar(4_500, 1_000)
    assert 'class="budget budget-bad"' in drawn
    assert 'class="bar-fill" width="100.00%"' in drawn
    assert 'aria-label="Core memory: 4,500 of 1,000 tokens, 4.5× its budget"' in drawn
    assert "<b>4,500</b> of 1,000 tokens · <strong>4.5×</strong></span>" in drawn


def test_a_budget_of_nothing_can_be_drawn() -> None:
    assert "<b>7</b> of 0 tokens · <strong>7.0×</strong>" in budget_bar(7, 0)


def test_the_label_of_a_bar_is_escaped() -> None:
    assert 'aria-label="&lt;b&gt;&#34;: 1 of 2 tokens"' in budget_bar(1, 2, '<b>"')
