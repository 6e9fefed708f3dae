"""Secrets of authenticator apps: the RFC's own codes, sealed for one user, and recovery codes as keyed digests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.silo import SealBroken, SecondFactorKey, matching_step, new_totp_secret

RFC_SECRET = b"12345678901234567890"
SECRET = "what signs the cookies of this installation"


@pytest.mark.parametrize(("seconds", "code"), [(1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")])
def test_the_codes_are_those_of_rfc_6238(seconds: int, code: str) -> None:
    at = datetime.fromtimestamp(seconds, UTC)

    assert matching_step(RFC_SECRET, code, at) == seconds // 30
    assert matching_step(RFC_SECRET, code, at + timedelta(seconds=30)) == seconds // 30
    assert matching_step(RFC_SECRET, code, at + timedelta(seconds=60)) is None
    assert matching_step(RFC_SECRET, code, at - timedelta(seconds=60)) is None


@pytest.mark.parametrize("code", ["", "28708", "2870822", "٢٨٧٠٨٢", "\ud800"])
def test_what_is_no_code_is_refused(code: str) -> None:
    assert matching_step(RFC_SECRET, code, datetime.fromtimestamp(59, UTC)) is None


def test_a_secret_opens_for_its_user_and_by_its_key_alone() -> None:
    key, secret = SecondFactorKey(SECRET), new_totp_secret()
    sealed = key.seal(secret, user_id=7)

    assert (len(secret), key.open(sealed, user_id=7)) == (20, secret)
    assert key.seal(secret, user_id=7) != sealed
    assert len(sealed) > 64, "an audit entry says longer texts as digests"
    for other, user_id in ((key, 8), (SecondFactorKey(f"{SECRET}."), 7)):
        with pytest.raises(SealBroken):
            other.open(sealed, user_id=user_id)
    for broken in ("", "totp1:", "totp1:!!", sealed[:-4], sealed[:-4] + "AAA="):
        with pytest.raises(SealBroken):
            key.open(broken, user_id=7)


def test_a_recovery_code_has_another_digest_for_every_user_and_key() -> None:
    digests = {
        SecondFactorKey(secret).digest_code(code, user_id=user_id)
        for secret in (SECRET, f"{SECRET}.")
        for code in ("abcd", "abce")
        for user_id in (1, 2)
    }
    assert len(digests) == 8
