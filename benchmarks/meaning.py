"""How many losses of meaning are noticed before a change, and how many harmless changes are asked about.

    python -m benchmarks.meaning --data FOLDER [--half report|develop|all] [--most 400] [--failures KIND]

FOLDER holds `ledgers/*.jsonl` (the format of `memories import`) and, where there is one, a file of pairs of sentences,
`near_duplicates_paws.jsonl` (`a`, `b`, `label` 1 = the same meaning). The rules were made on one half of the texts,
chosen by their SHA-256; unless told otherwise the other half is measured. Beside it stand two rules of other systems,
written from their documentation: a change passes as long as a share of the text's length is left (0.75), or as half of
all tokens are common to both texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from app.meaning import ChangeKind, missing, missing_of_sources
from benchmarks.meaning_changes import HARMLESS, LOSSES, Pair, Planter

_LEAST_MASS = 0.75
_LEAST_OVERLAP = 0.5
_USUAL = 500
"""Characters of a usual text, at most."""


@dataclass
class Tally:
    """Of one kind of change: how many, and how many each rule asked about."""

    name: str
    changes: int = 0
    asked: int = 0
    by_mass: int = 0
    by_overlap: int = 0

    def row(self) -> str:
        low, high = wilson(self.asked, self.changes)
        share = [
            f"{100 * count / max(self.changes, 1):5.1f} %" for count in (self.asked, self.by_mass, self.by_overlap)
        ]
        bounds = f"{100 * low:.1f}–{100 * high:.1f} %"
        return f"| {self.name} | {self.changes} | {share[0]} | {bounds} | {share[1]} | {share[2]} |"


@dataclass
class Bench:
    most: int
    failures: str = ""
    seconds: list[float] = field(default_factory=list)

    def measured(self, name: str, pairs: Iterable[Pair], kind: ChangeKind, *, asks: bool) -> Tally:
        """`asks`: what the rule should do; the others are failures, printed where they are wanted."""
        tally = Tally(name)
        for old, new in pairs:
            if tally.changes >= self.most:
                break
            started = time.process_time()
            lost = missing(old, new, kind=kind)
            if len(old) <= _USUAL and len(new) <= _USUAL:
                self.seconds.append(time.process_time() - started)
            if self.failures and self.failures == name and bool(lost) is not asks:
                print(f"  {old}\n→ {new}\n  {[(each.kind.value, each.words) for each in lost]}\n")
            tally.changes += 1
            tally.asked += bool(lost)
            tally.by_mass += len(new) < _LEAST_MASS * len(old)
            tally.by_overlap += overlap(old, new) < _LEAST_OVERLAP
        return tally


def overlap(old: str, new: str) -> float:
    one, other = {*old.lower().split()}, {*new.lower().split()}
    return len(one & other) / max(len(one | other), 1)


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if not of:
        return 0.0, 1.0
    z, share = 1.96, hits / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    reach = z * (share * (1 - share) / of + z * z / (4 * of * of)) ** 0.5 / (1 + z * z / of)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def in_half(text: str, half: str) -> bool:
    odd = hashlib.sha256(text.encode()).digest()[0] % 2 == 1
    return half == "all" or odd is (half == "report")


def read_lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def planted(planter: Planter, texts: list[str], chance: random.Random) -> Iterator[Pair]:
    pairs = (planter(text, chance) for text in chance.sample(texts, len(texts)))
    return (pair for pair in pairs if pair is not None and pair[0] != pair[1])


def head(title: str) -> None:
    print(f"\n| {title} | changes | asked | 95 % | mass ratio | token overlap |\n|---|---|---|---|---|---|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--half", choices=("report", "develop", "all"), default="report")
    parser.add_argument("--most", type=int, default=400, help="changes of a kind")
    parser.add_argument("--failures", default="", help="print those of this kind")
    given = parser.parse_args()
    chance, bench = random.Random(12), Bench(given.most, given.failures)

    ledgers = {
        path.stem: [*dict.fromkeys(line["content"] for line in read_lines(path))]
        for path in sorted((given.data / "ledgers").glob("*.jsonl"))
    }
    paws_file = given.data / "near_duplicates_paws.jsonl"
    paws = [line for line in read_lines(paws_file) if in_half(line["a"], given.half)] if paws_file.exists() else []
    memories = sorted({text for ledger in ledgers.values() for text in ledger if in_half(text, given.half)})
    texts = memories + [line["a"] for line in paws]

    head("planted loss (update)")
    for name, planter in LOSSES.items():
        print(bench.measured(name, planted(planter, texts, chance), ChangeKind.UPDATE, asks=True).row())
    head("harmless (update)")
    total = Tally("all of them")
    for name, planter in HARMLESS.items():
        tally = bench.measured(name, planted(planter, texts, chance), ChangeKind.UPDATE, asks=False)
        for count in ("changes", "asked", "by_mass", "by_overlap"):
            setattr(total, count, getattr(total, count) + getattr(tally, count))
        print(tally.row())
    print(total.row())
    head("PAWS pairs (update)")
    for label, name in ((0, "other meaning"), (1, "same meaning, other words")):
        pairs = [(line["a"], line["b"]) for line in paws if line["label"] == label]
        print(bench.measured(name, pairs, ChangeKind.UPDATE, asks=label == 0).row())
    head("random deletion, random carrier")
    for name, ledger in ledgers.items():
        own = [text for text in ledger if in_half(text, given.half)]
        carried = [
            (text, chance.choice([other for other in ledger if other != text])) for text in own for _ in range(4)
        ]
        print(bench.measured(name, carried, ChangeKind.DELETE, asks=True).row())
    head("merge")
    couples = [tuple(chance.sample(memories, 2)) for _ in range(given.most)]
    joined = [(one, f"{one.rstrip('. ')}. {other}") for one, other in couples]
    print(bench.measured("two memories joined", joined, ChangeKind.CONSOLIDATE, asks=False).row())
    print(
        bench.measured(
            "one of two kept", [(one, other) for one, other in couples], ChangeKind.CONSOLIDATE, asks=True
        ).row()
    )
    asked = sum(
        bool(missing_of_sources(couple, joined[at][1], kind=ChangeKind.CONSOLIDATE))
        for at, couple in enumerate(couples)
    )
    print(f"\nBoth sources of {len(couples)} joined couples: {asked} asked about.")
    print_times(bench.seconds)


def print_times(seconds: list[float]) -> None:
    ordered = sorted(seconds)
    slow = ordered[len(ordered) * 99 // 100]
    print(
        f"\nTexts up to {_USUAL} characters: a check takes {1000 * median(ordered):.2f} ms, 99 % ≤ {1000 * slow:.2f} ms"
    )
    for name, text in long_texts().items():
        times = []
        for _ in range(5):
            started = time.process_time()
            missing(text, text[: len(text) // 2] + "x " + text[len(text) // 2 :], kind=ChangeKind.CONSOLIDATE)
            times.append(time.process_time() - started)
        print(f"10,000 characters, {name}: {1000 * min(times):.1f} ms")


def long_texts() -> dict[str, str]:
    pieces = {
        "prose": "Alice met Bob in Oslo on 3 May 2024 and they should not have paid more than 5 dollars. ",
        "one number": "5 ", "many numbers": "{} ", "Arabic": "لا أحب القهوة بعد الساعة {} مساء. ",
        "Chinese": "我不喜欢在晚上喝咖啡第{}次。",
        "mixed": "Hi {} 你好 привет `a{}` \"b{}\" 😀 x_{} http://a.b/{} ", "punctuation": "\"'`(`'[{{<.,;:-_*",
    }  # fmt: skip
    return {
        name: "".join(piece.replace("{}", str(at)) for at in range(10_000 // len(piece) + 1))[:10_000]
        for name, piece in pieces.items()
    }


if __name__ == "__main__":
    main()
