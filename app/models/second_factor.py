"""SecondFactor: what a user shows beside the password: an authenticator app's code, a passkey or a recovery code.

The rows hold the app's secret sealed and the codes as digests; `app/second_factor` has the keys. Each act is behind the
lock of the user's account, so that of two requests with one code only the first finds it unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Refused
from app.extensions import db, now
from app.models.audit import Action, record
from app.models.passkey import MAX_PASSKEYS, Passkey, PasskeyTaken
from app.values.actor import Actor

if TYPE_CHECKING:
    from app.models.user import Account


class SecondFactorIsOn(Refused):
    """An authenticator app is set up already. Turn it off first."""

    code = "second_factor_is_on"
    outcome = "Nothing was changed."


class SecondFactorIsOff(Refused):
    """There is no second factor."""

    code = "second_factor_is_off"
    outcome = "Nothing was changed."


class SecondFactor:
    """The part of a User. `totp_step` is the 30-second step of the last code that was taken: none before it counts.

    `challenge_at` is the same of challenges for passkeys: when the last one that was answered was made, in µs.
    """

    totp_step: Mapped[int | None] = mapped_column(BigInteger)
    challenge_at: Mapped[int | None] = mapped_column(BigInteger)

    if TYPE_CHECKING:
        id: Mapped[int]
        email: Mapped[str]
        passkeys: Mapped[list[Passkey]]
        tf_totp_secret: Mapped[str | None]
        mf_recovery_codes: Mapped[list[str] | None]

        @property
        def actor(self) -> Actor: ...

        @property
        def subject(self) -> str: ...

        def _end_all_sessions(self, keeping: str = "", *, why: str) -> None: ...

    @property
    def has_totp(self) -> bool:
        return bool(self.tf_totp_secret)

    @property
    def has_second_factor(self) -> bool:
        return self.has_totp or bool(self.passkeys)

    @property
    def recovery_codes_left(self) -> int:
        return len(self.mf_recovery_codes or [])

    def set_totp(self, account: Account, sealed: str, *, step: int, digests: Sequence[str]) -> bool:
        """`digests` are those of new recovery codes; returns whether they are taken: only while none are left.

        Raises SecondFactorIsOn. The account is locked.
        """
        if self.has_totp:
            raise SecondFactorIsOn
        self.tf_totp_secret, self.totp_step = sealed, step
        taken = self._take_first_codes(digests)
        self._record(account, Action.SECOND_FACTOR_ON, {"kind": "authenticator app"})
        return taken

    def use_step(self, step: int) -> bool:
        """Whether no code of this step, or of a later one, was taken before. The account is locked."""
        if self.totp_step is not None and step <= self.totp_step:
            return False
        self.totp_step = step
        return True

    def use_challenge(self, at: int) -> bool:
        """Whether neither this challenge was answered before, nor one that was made after it. The account is locked."""
        if self.challenge_at is not None and at <= self.challenge_at:
            return False
        self.challenge_at = at
        return True

    def add_passkey(self, account: Account, passkey: Passkey, *, digests: Sequence[str]) -> bool:
        """`digests` are those of new recovery codes; returns whether they are taken: only while none are left.

        Raises PasskeyTaken, and Refused for too many or for a name twice. The account is locked.
        """
        self._reload_passkeys()
        if len(self.passkeys) >= MAX_PASSKEYS:
            raise Refused(f"You have {MAX_PASSKEYS} passkeys. Remove one first.", "Nothing was changed.")
        if passkey.name in {each.name for each in self.passkeys}:
            raise Refused("You have a passkey of this name. Choose another name.", "Nothing was changed.")
        if db.session.scalar(select(Passkey.id).where(Passkey.credential_id == passkey.credential_id)) is not None:
            raise PasskeyTaken
        passkey.account_id, passkey.user_id, passkey.created_at = account.id, self.id, now()
        db.session.add(passkey)
        taken = self._take_first_codes(digests)
        db.session.flush()
        self._record(account, Action.PASSKEY_ADD, {"passkey": passkey.id, "name": passkey.name, "host": passkey.host})
        self._reload_passkeys()
        return taken

    def remove_passkey(self, account: Account, passkey: Passkey) -> None:
        """With the last second factor go the recovery codes. The account is locked."""
        self._remove(passkey)
        if not self.has_second_factor:
            self.mf_recovery_codes = None
        self._record(account, Action.PASSKEY_REMOVE, {"passkey": passkey.id, "name": passkey.name})

    def use_recovery_code(self, account: Account, digest: str) -> bool:
        """Whether it was one that is left; it is not after. The account is locked."""
        left = list(self.mf_recovery_codes or [])
        if digest not in left:
            return False
        left.remove(digest)
        self.mf_recovery_codes = left
        self._record(account, Action.RECOVERY_CODE_USE, {"left": len(left)})
        return True

    def renew_recovery_codes(self, account: Account, digests: Sequence[str]) -> None:
        """None of the earlier ones is good any more. Raises SecondFactorIsOff. The account is locked."""
        if not self.has_second_factor:
            raise SecondFactorIsOff("Recovery codes stand in for a second factor. Set one up first.")
        self.mf_recovery_codes = list(digests)
        self._record(account, Action.RECOVERY_CODES_RENEW, {"codes": len(digests)})

    def turn_off_totp(self, account: Account) -> bool:
        """Returns whether it was on. The account is locked."""
        if not self.has_totp:
            return False
        self.tf_totp_secret = self.totp_step = None
        if not self.has_second_factor:
            self.mf_recovery_codes = None
        self._record(account, Action.SECOND_FACTOR_OFF, {"kind": "authenticator app"})
        return True

    def take_off_second_factor(self, account: Account, *, by: Actor) -> bool:
        """For who lost it: the password alone is enough from now on, and all sessions end.

        Returns whether there was one. The account is locked.
        """
        if not self.has_second_factor:
            return False
        removed = list(self.passkeys)
        for each in removed:
            self._remove(each)
        self.tf_totp_secret = self.totp_step = self.mf_recovery_codes = None
        self._end_all_sessions(why="second factor taken off")
        self._record(account, Action.SECOND_FACTOR_RESET, {"passkeys": len(removed)} if removed else {}, by=by)
        return True

    def _take_first_codes(self, digests: Sequence[str]) -> bool:
        if self.recovery_codes_left:
            return False
        self.mf_recovery_codes = list(digests)
        return True

    def _remove(self, passkey: Passkey) -> None:
        passkey.removed_at = now()
        db.session.flush()
        self._reload_passkeys()

    def _reload_passkeys(self) -> None:
        db.session.expire(self, ["passkeys"])

    def _record(self, account: Account, action: Action, data: dict[str, Any], *, by: Actor | None = None) -> None:
        record(action, actor=by or self.actor, of=account, subject=self.subject, data={"email": self.email} | data)
