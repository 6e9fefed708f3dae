"""How many losses of meaning are noticed before a change, and how many harmless changes are asked about.

    python -m benchmarks.meaning [--data FOLDER] [--half report|develop|all] [--most 400] [--failures KIND]

Without a folder it runs on sentences of our own (`meaning_scenes.toml`). FOLDER holds `ledgers/*.jsonl` (the format of
`memories import`) and, where there is one, a file of pairs of sentences, `near_duplicates_paws.jsonl` (`a`, `b`,
`label` 1 = the same meaning). The rules were made on one half of the texts, chosen by their SHA-256; unless told
otherwise the other half is measured. Beside it stand two rules of other systems, written from their documentation: a
change passes as long as a share of the text's length is left (0.75), or as half of all tokens are common to both texts.
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
from typing import Any

from app.meaning import ChangeKind, missing, missing_of_sources
from benchmarks.meaning_changes import HARMLESS, LOSSES, Pair, Planter
from benchmarks.meaning_scenes import memories, parts, read_scenes

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

    def add(self, other: Tally) -> None:
        self.changes += other.changes
        self.asked += other.asked
        self.by_mass += other.by_mass
        self.by_overlap += other.by_overlap

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


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def planted(planter: Planter, texts: list[str], chance: random.Random) -> Iterator[Pair]:
    pairs = (planter(text, chance) for text in chance.sample(texts, len(texts)))
    return (pair for pair in pairs if pair is not None and pair[0] != pair[1])


def head(title: str) -> None:
    print(f"\n| {title} | changes | asked | 95 % | mass ratio | token overlap |\n|---|---|---|---|---|---|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="without it: sentences of our own, all of them")
    parser.add_argument("--half", choices=("report", "develop", "all"), default="report")
    parser.add_argument("--most", type=int, default=400, help="changes of a kind")
    parser.add_argument("--failures", default="", help="print those of this kind")
    given = parser.parse_args()
    half = given.half if given.data else "all"
    ledgers = read_ledgers(given.data) if given.data else {"our own sentences": memories()}
    paws_file = given.data / "near_duplicates_paws.jsonl" if given.data else None
    paws = read_lines(paws_file) if paws_file and paws_file.exists() else []
    Run(Bench(given.most, given.failures), half, ledgers, [line for line in paws if in_half(line["a"], half)]).all()


def read_ledgers(folder: Path) -> dict[str, list[str]]:
    return {
        path.stem: [*dict.fromkeys(line["content"] for line in read_lines(path))]
        for path in sorted((folder / "ledgers").glob("*.jsonl"))
    }


@dataclass
class Run:
    """All tables, in the order in which docs/meaning.md prints them."""

    bench: Bench
    half: str
    ledgers: dict[str, list[str]]
    paws: list[dict[str, Any]]
    chance: random.Random = field(default_factory=lambda: random.Random(12))

    def all(self) -> None:
        memories = sorted({text for ledger in self.ledgers.values() for text in ledger if in_half(text, self.half)})
        texts = memories + [line["a"] for line in self.paws]
        losses = self.table("planted loss (update)", LOSSES, texts, asks=True)
        harmless = self.table("harmless (update)", HARMLESS, texts, asks=False)
        self.written_by_hand()
        if self.paws:
            self.pairs_of_paws()
        passed = [*self.deletions(), *self.merges(memories)]
        print_errors(passed)
        print_rules(losses, harmless)
        print_times(self.bench.seconds)

    def table(self, title: str, planters: dict[str, Planter], texts: list[str], *, asks: bool) -> Tally:
        head(title)
        total = Tally("all of them")
        for name, planter in planters.items():
            pairs = planted(planter, texts, self.chance)
            total.add(self.show(name, pairs, ChangeKind.UPDATE, asks=asks))
        print(total.row())
        return total

    def show(self, name: str, pairs: Iterable[Pair], kind: ChangeKind, *, asks: bool) -> Tally:
        tally = self.bench.measured(name, pairs, kind, asks=asks)
        print(tally.row())
        return tally

    def written_by_hand(self) -> None:
        for side, asks in (("losses", True), ("harmless", False)):
            for part in parts():
                head(f"written by hand: {side}, {part.replace('_', ' ')} part")
                total = Tally("all of them")
                for name, pairs in read_scenes(part, side).items():
                    kind = ChangeKind.CONSOLIDATE if name.startswith("merged") else ChangeKind.UPDATE
                    total.add(self.show(name, pairs, kind, asks=asks))
                print(total.row())

    def pairs_of_paws(self) -> None:
        head("PAWS pairs (update)")
        for label, name in ((0, "other meaning"), (1, "same meaning, other words")):
            pairs = [(line["a"], line["b"]) for line in self.paws if line["label"] == label]
            self.show(name, pairs, ChangeKind.UPDATE, asks=label == 0)

    def deletions(self) -> Iterator[Tally]:
        """With a carrier at random, and with the most similar memory of the same ledger."""
        head("deletion with a random carrier")
        own = {name: [text for text in ledger if in_half(text, self.half)] for name, ledger in self.ledgers.items()}
        for name, ledger in self.ledgers.items():
            carried = [(text, self.carrier(text, ledger)) for text in own[name] for _ in range(4)]
            yield self.show(name, carried, ChangeKind.DELETE, asks=True)
        head("deletion with the most similar memory")
        for name, ledger in self.ledgers.items():
            carried = [(text, nearest(text, ledger)) for text in own[name][: self.bench.most]]
            yield self.show(f"{name}, most similar", carried, ChangeKind.DELETE, asks=True)

    def carrier(self, text: str, ledger: list[str]) -> str:
        return self.chance.choice([other for other in ledger if other != text])

    def merges(self, memories: list[str]) -> Iterator[Tally]:
        head("merge of two memories")
        drawn = (self.chance.sample(memories, 2) for _ in range(self.bench.most))
        couples = [(one, other) for one, other in drawn]
        joined = [(one, f"{one.rstrip('. ')}. {other}") for one, other in couples]
        self.show("both joined", joined, ChangeKind.CONSOLIDATE, asks=False)
        yield self.show("only the other kept", couples, ChangeKind.CONSOLIDATE, asks=True)
        halves = [(one, f"{' '.join(one.split()[: len(one.split()) // 2])}. {other}") for one, other in couples]
        yield self.show("half of it kept", halves, ChangeKind.CONSOLIDATE, asks=True)
        both = sum(
            bool(missing_of_sources(couple, whole, kind=ChangeKind.CONSOLIDATE))
            for couple, (_, whole) in zip(couples, joined, strict=True)
        )
        print(f"\nBoth sources of {len(couples)} joined couples: {both} asked about.")


def nearest(text: str, ledger: list[str]) -> str:
    return max((other for other in ledger if other != text), key=lambda other: overlap(text, other))


def print_errors(tallies: Iterable[Tally]) -> None:
    """What would have gone unasked, at most, with 95 % confidence."""
    print("\n| error | changes | passed unasked | 95 % |\n|---|---|---|---|")
    for tally in tallies:
        passed = tally.changes - tally.asked
        low, high = wilson(passed, tally.changes)
        share = 100 * passed / max(tally.changes, 1)
        print(f"| {tally.name} | {tally.changes} | {share:.1f} % | {100 * low:.1f}–{100 * high:.1f} % |")


def print_rules(losses: Tally, harmless: Tally) -> None:
    print("\n| rule | planted losses asked about | harmless changes asked about |\n|---|---|---|")
    for name, count in (("specifics (this one)", "asked"), ("mass ratio", "by_mass"), ("token overlap", "by_overlap")):
        shares = [100 * getattr(each, count) / max(each.changes, 1) for each in (losses, harmless)]
        print(f"| {name} | {shares[0]:.1f} % | {shares[1]:.1f} % |")
    print("| cosine ≥ 0.9 | not measured: no embedding model here | not measured |")


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
