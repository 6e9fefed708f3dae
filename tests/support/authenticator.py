"""A device that holds passkeys, in software: ES256 keys, and answers as a browser sends them."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url

ORIGIN = "http://localhost"
"""Of Flask's test client."""

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


@dataclass
class HeldKey:
    """One passkey, of one user at one host."""

    credential_id: bytes
    private: ec.EllipticCurvePrivateKey
    host: str
    handle: bytes
    count: int = 0

    @property
    def public(self) -> bytes:
        """COSE: EC2, ES256, P-256."""
        numbers = self.private.public_key().public_numbers()
        x, y = numbers.x.to_bytes(32, "big"), numbers.y.to_bytes(32, "big")
        return bytes(cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y}))


@dataclass
class SoftAuthenticator:
    """It does what it is asked, or what a test has it do instead: another origin, host, challenge, count, user handle.

    `counts` is whether it counts what it signs; passkeys that are synchronized don't.
    """

    counts: bool = True
    held: list[HeldKey] = field(default_factory=list)

    def make(self, options: dict[str, Any], *, again: HeldKey | None = None, **instead: Any) -> str:
        """Answer to `navigator.credentials.create`. `again`: the key that it holds already."""
        host, handle = options["rp"]["id"], base64url_to_bytes(options["user"]["id"])
        key = again or HeldKey(secrets.token_bytes(32), ec.generate_private_key(ec.SECP256R1()), host, handle)
        if again is None:
            self.held.append(key)
        attested = bytes(16) + len(key.credential_id).to_bytes(2, "big") + key.credential_id + key.public
        data = _data(key, ATTESTED, instead) + attested
        statement = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        response = {"clientDataJSON": _client_data("webauthn.create", options, instead), "attestationObject": statement}
        return _credential(key, response)

    def use(self, options: dict[str, Any], key: HeldKey | None = None, **instead: Any) -> str:
        """Answer to `navigator.credentials.get`, by the last key if none is named."""
        key = key or self.held[-1]
        key.count += self.counts
        data, client_data = _data(key, 0, instead), _client_data("webauthn.get", options, instead)
        signed = data + hashlib.sha256(client_data).digest()
        signature = key.private.sign(signed, ec.ECDSA(SHA256()))
        if instead.get("tampered"):
            data = data[:-1] + bytes([data[-1] ^ 1])
        response = {"clientDataJSON": client_data, "authenticatorData": data, "signature": signature}
        handle = instead.get("handle", key.handle)
        return _credential(key, response | ({"userHandle": handle} if handle is not None else {}))


def _data(key: HeldKey, more: int, instead: dict[str, Any]) -> bytes:
    flags = instead.get("flags", PRESENT | VERIFIED) | more
    host: str = instead.get("host", key.host)
    count: int = instead.get("count", key.count)
    return hashlib.sha256(host.encode()).digest() + bytes([flags]) + count.to_bytes(4, "big")


def _client_data(kind: str, options: dict[str, Any], instead: dict[str, Any]) -> bytes:
    said = {
        "type": instead.get("type", kind),
        "challenge": instead.get("challenge", options["challenge"]),
        "origin": instead.get("origin", ORIGIN),
        "crossOrigin": False,
    }
    return json.dumps(said).encode()


def _credential(key: HeldKey, response: dict[str, bytes]) -> str:
    number = bytes_to_base64url(key.credential_id)
    parts = {name: bytes_to_base64url(value) for name, value in response.items()}
    return json.dumps({"id": number, "rawId": number, "type": "public-key", "response": parts})
