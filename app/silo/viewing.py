"""A view's own key pair: made for one request, so that only this request can read what the worker seals to it."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from app.silo.keys import KeyPair, MasterPublicKey


class ViewKey(KeyPair):
    """Lives as long as a request; its private half is stored nowhere."""

    def __init__(self) -> None:
        super().__init__(X25519PrivateKey.generate())

    def open_view(self, sealed: bytes, *, view_id: str) -> str:
        """What was sealed for this view. Raises SealBroken."""
        return self.open(sealed, _view_info(view_id)).decode()


def seal_view(text: str, *, view_id: str, reader: bytes) -> bytes:
    """Seal a text to the key pair of one view, `reader` being its public half."""
    return MasterPublicKey(reader).seal(text.encode(), _view_info(view_id))


def _view_info(view_id: str) -> str:
    return f"whetstone/view/1|{view_id}"
