"""The identity of a caller, and its rights."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from koala.model.api import WHY_CHARACTERS_MAX, Scope
from koala.model.errors import ForbiddenError, InvalidError
from koala.model.messages import Wish

OWNER_KEY = "owner"

AnyWish = TypeVar("AnyWish", bound=Wish)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A caller: the daemon's own user, who may do everything, or the user of a token, who may do what it grants. A
    ``guest`` is a user other than the daemon's own: its jobs stay away from sites that are closed to guests."""

    name: str
    scopes: frozenset[Scope]
    owner: bool = False
    guest: bool = False

    def may(self, scope: Scope) -> bool:
        """Return True if the caller holds the scope."""
        return self.owner or scope in self.scopes

    def need(self, scope: Scope) -> None:
        """Raise ``ForbiddenError`` unless the caller holds the scope."""
        if not self.may(scope):
            raise ForbiddenError(f"this needs the scope {scope}, which the token of {self.name} does not have")

    def signed(self, wish: AnyWish, reason: str) -> AnyWish:
        """Return the wish with its author and reason. Raises ``InvalidError`` for a reason that cannot be put on
        record."""
        reason = reason.strip()
        if len(reason) > WHY_CHARACTERS_MAX:
            raise InvalidError(
                f"reason: it has {len(reason)} characters of {WHY_CHARACTERS_MAX} at most (WHY_CHARACTERS_MAX); "
                "write a shorter one"
            )
        if not reason.isprintable():
            raise InvalidError("reason: it holds characters that cannot be shown; write one line of text")
        return msgspec.structs.replace(wish, by=self.name, reason=reason)

    @property
    def key(self) -> str:
        """The key to count by: one for a user with all their tokens, and another for the daemon's own user."""
        return OWNER_KEY if self.owner else f"user {self.name}"

    @property
    def sees_all(self) -> bool:
        """True if other users' jobs exist for the caller."""
        return self.may(Scope.OPERATE)


def owner(name: str) -> Principal:
    """Return the daemon's own user."""
    return Principal(name=name, scopes=frozenset(Scope), owner=True)
