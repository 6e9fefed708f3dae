"""Notes, checkpoints and proofs made by Whetstone, checked by tools of others; any difference ends with status 1.

    apt-get install golang-go golang-golang-x-mod-dev openssl
    PYTHONPATH=. .venv/bin/python -m benchmarks.foreign_log_check

The tools are Go's `golang.org/x/mod/sumdb/note` and `.../tlog`, which invented notes, and openssl for the signatures.
Elsewhere than on Debian, `--gopath` names a folder with `src/golang.org/x/mod`. With `--formats`, a checkout of
https://github.com/transparency-dev/formats (v0.1.1, Go 1.20 or newer), the files of c2sp.org/tlog-proof are read too.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.silo import (
    Checkpoint,
    InclusionProof,
    MerkleTree,
    NoteVerifier,
    SigningKey,
    add_signature,
    format_proof,
    hash_leaf,
    sign_note,
)

HERE = Path(__file__).parent
DEBIAN = Path("/usr/share/gocode")
LEAVES = 300
SMALL = 70
"""Up to this size every leaf and every beginning is proved; beyond, some."""

CHANCE = random.Random(11)
SEEDS = {f"whetstone/{name}": CHANCE.randbytes(32) for name in ("one", "two", "three")}
KEYS = {name: SigningKey(name, seed) for name, seed in SEEDS.items()}
ONE, TWO, THREE = KEYS.values()
TEXTS = ["A line.\n", "\n", "ünd\n\n— one AAAA\n\n", 'whetstone-statement/1\n{"agent":null}\n', "x" * 30_000 + "\n"]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gopath", type=Path, default=DEBIAN)
    options.add_argument("--formats", type=Path)
    given = options.parse_args()
    missing = [tool for tool in ("go", "openssl") if shutil.which(tool) is None]
    if missing or not (given.gopath / "src/golang.org/x/mod/sumdb/note").is_dir():
        print(f"Not here: {' or '.join(missing) or 'golang.org/x/mod'}.\n{__doc__}")
        return 2
    print(f"{run('go', 'version')}; golang.org/x/mod {version_of_mod(given.gopath)}; {run('openssl', 'version')}")
    return check_with_go(given.gopath, given.formats) or check_with_openssl()


def check_with_go(gopath: Path, formats: Path | None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "src", "foreign")
        program.mkdir(parents=True)
        for source in HERE.glob("*.go"):
            shutil.copy(source, program)
        if formats:
            reader = Path(folder, "src", "transparency", "proof")
            reader.mkdir(parents=True)
            shutil.copy(formats / "proof" / "tlog_proof.go", reader)
        environment = {**os.environ, "GO111MODULE": "off", "GOPATH": f"{folder}:{gopath}", "GOFLAGS": ""}
        build = ["go", "build", "-o", f"{folder}/check", *(["-tags", "formats"] if formats else []), "foreign"]
        subprocess.run(build, check=True, env=environment, cwd=program)
        made = {"Opened": list(opened()), "Signed": list(signed()), **tree()}
        return subprocess.run([f"{folder}/check"], input=json.dumps(made), text=True, check=False).returncode


def opened() -> Iterator[dict[str, Any]]:
    """Notes with the keys to open them, and who has signed them; altered ones, which nobody has."""

    def case(note: bytes, text: str, keys: list[NoteVerifier], *signers: SigningKey) -> dict[str, Any]:
        names = [signer.name for signer in signers]
        return {"Note": encode(note), "Text": text, "Keys": [key.vkey for key in keys], "Names": names}

    for text in TEXTS:
        note = add_signature(sign_note(text, ONE, TWO), THREE)
        yield case(note, text, [ONE.verifier], ONE)
        yield case(note, text, [THREE.verifier, ONE.verifier], ONE, THREE)
        yield case(note, text, [key.verifier for key in KEYS.values()], *KEYS.values())
        yield case(sign_note(text, TWO), text, [ONE.verifier])
        yield case(note, text, [SigningKey(ONE.name, bytes(32)).verifier])
    text = TEXTS[2]
    note = sign_note(text, ONE)
    for place in range(len(text.encode())):
        yield case(note[:place] + bytes([note[place] ^ 1]) + note[place + 1 :], text, [ONE.verifier])
    for end in range(len(note)):
        yield case(note[:end], text, [ONE.verifier])


def signed() -> Iterator[dict[str, Any]]:
    """Texts with the keys to sign them, and the note that it makes here."""
    secrets = {
        name: f"PRIVATE+KEY+{name}+{KEYS[name].verifier.key_id.hex()}+{encode(bytes([1]) + seed)}"
        for name, seed in SEEDS.items()
    }
    for text in TEXTS:
        yield {"Secrets": [secrets[ONE.name]], "Text": text, "Note": encode(sign_note(text, ONE))}
        yield {"Secrets": [*secrets.values()], "Text": text, "Note": encode(sign_note(text, *KEYS.values()))}


def tree() -> dict[str, Any]:
    """A log's leaves, its root at every size, its proofs, and altered proofs."""
    leaves = [CHANCE.randbytes(CHANCE.randrange(200)) for _ in range(LEAVES)]
    grown = MerkleTree(hash_leaf(leaf) for leaf in leaves)
    sizes = [*range(1, SMALL), *CHANCE.sample(range(SMALL, LEAVES + 1), 40)]
    places = [(place, size) for size in sizes for place in some(range(size))]
    begun = [(old, new) for new in sizes for old in some(range(1, new + 1))]
    inclusion = [(index, size, grown.inclusion_proof(index, size)) for index, size in places]
    consistency = [(old, new, grown.consistency_proof(old, new)) for old, new in begun]
    origin = "go.sum database tree"
    return {
        "Leaves": [encode(leaf) for leaf in leaves],
        "Roots": [encode(grown.root_at(size)) for size in range(LEAVES + 1)],
        "Included": [
            {"Index": index, "Size": size, "Proof": [encode(each) for each in proof], "Wrong": wrong}
            for index, size, right in inclusion
            for proof, wrong in ((right, False), *((other, True) for other in altered(right)))
        ],
        "Grown": [
            {"Old": old, "New": new, "Proof": [encode(each) for each in proof], "Wrong": wrong}
            for old, new, right in consistency
            for proof, wrong in ((right, False), *((other, True) for other in altered(right)))
        ],
        "Checkpoints": [
            {"Size": size, "Text": Checkpoint(origin, size, grown.root_at(size)).text} for size in range(LEAVES + 1)
        ],
        "Proofs": [proof_file(grown, leaves, index, size, proof) for index, size, proof in inclusion],
    }


def some(places: range) -> list[int]:
    return list(places) if len(places) < SMALL else CHANCE.sample(places, 10)


def altered(proof: list[bytes]) -> Iterator[list[bytes]]:
    yield [*proof, bytes(32)]
    if proof:
        yield proof[:-1]
        place = CHANCE.randrange(len(proof))
        yield [*proof[:place], bytes([proof[place][0] ^ 1]) + proof[place][1:], *proof[place + 1 :]]


def proof_file(grown: MerkleTree, leaves: list[bytes], index: int, size: int, proof: list[bytes]) -> dict[str, Any]:
    note = sign_note(Checkpoint(ONE.name, size, grown.root_at(size)).text, ONE)
    extra = leaves[index] or None
    file = format_proof(InclusionProof(index, tuple(proof), note, extra))
    return {
        "File": encode(file),
        "Extra": encode(extra or b""),
        "Checkpoint": encode(note),
        "Index": index,
        "Hashes": [encode(each) for each in proof],
    }


def check_with_openssl() -> int:
    verified = 0
    with tempfile.TemporaryDirectory() as folder:
        for key in KEYS.values():
            public = Ed25519PublicKey.from_public_bytes(key.verifier.public)
            Path(folder, "key").write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
            for text in TEXTS:
                Path(folder, "signature").write_bytes(key.sign(text))
                for written, status in ((text, 0), (f"{text}\n", 1)):
                    Path(folder, "text").write_text(written)
                    command = [
                        "openssl",
                        "pkeyutl",
                        "-verify",
                        "-pubin",
                        "-inkey",
                        "key",
                        "-rawin",
                        "-in",
                        "text",
                        "-sigfile",
                        "signature",
                    ]
                    asked = subprocess.run(command, cwd=folder, capture_output=True, check=False)
                    if asked.returncode != status:
                        print(f"DIFFERS: openssl about a signature of {key.name}: {asked.stdout!r} {asked.stderr!r}")
                        return 1
                    verified += 1
    print(f"signatures that openssl verifies, or refuses for another text: {verified}")
    return 0


def encode(body: bytes) -> str:
    return base64.b64encode(body).decode()


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def version_of_mod(gopath: Path) -> str:
    if gopath != DEBIAN or shutil.which("dpkg-query") is None:
        return f"of {gopath}"
    return run("dpkg-query", "-W", "-f", "${Version}", "golang-golang-x-mod-dev")


if __name__ == "__main__":
    sys.exit(main())
