"""What a webhook's address and secret are sealed with, and how its messages are signed (Standard Webhooks).

Each channel's target is sealed twice: to the master key, for the worker, and to a key pair of the web processes, which
alone can say that no worker answers. Who reads the database reads neither, and can sign nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.silo.keys import KeyPair, MasterPublicKey

_PREFIX = "whsec_"


class WebNoticeKey(KeyPair):
    """The key pair that all web processes share: derived from the secret that signs their cookies, never stored."""

    def __init__(self, session_secret: str) -> None:
        derived = HKDF(SHA256(), 32, salt=None, info=b"whetstone/web-notice-key/1").derive(session_secret.encode())
        super().__init__(X25519PrivateKey.from_private_bytes(derived))


def new_webhook_secret() -> str:
    """`whsec_` and 256 random bits in base64, as receivers' libraries take it."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign_webhook(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`: HMAC-SHA256 over id, time (seconds) and body."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(base64.b64decode(secret.removeprefix(_PREFIX)), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def seal_target(text: str, *, channel_id: str, reader: MasterPublicKey) -> bytes:
    """Address and secret of a channel, for who holds the private half."""
    return reader.seal(text.encode(), _channel_info(channel_id))


def open_target(sealed: bytes, *, channel_id: str, key: KeyPair) -> str:
    """Raises SealBroken."""
    return key.open(sealed, _channel_info(channel_id)).decode()


def _channel_info(channel_id: str) -> str:
    return f"whetstone/notice-channel/1|{channel_id}"
