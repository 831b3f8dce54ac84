"""Who a caller is, and what it may do."""

from __future__ import annotations

import msgspec

from koala.model.api import Scope
from koala.model.errors import ForbiddenError

OWNER_KEY = "owner"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A caller: the daemon's own user, who may do everything, or the user of a token, who may do what it grants. A
    ``guest`` is another than the daemon's own user: its jobs stay away from sites that are closed to guests."""

    name: str
    scopes: frozenset[Scope]
    owner: bool = False
    guest: bool = False

    def may(self, scope: Scope) -> bool:
        """Whether the caller holds the scope."""
        return self.owner or scope in self.scopes

    def need(self, scope: Scope) -> None:
        """Raises ``ForbiddenError`` unless the caller holds the scope."""
        if not self.may(scope):
            raise ForbiddenError(f"this needs the scope {scope}, which the token of {self.name} does not have")

    @property
    def key(self) -> str:
        """Whom to count for: a user with all their tokens, and the daemon's own user apart from these."""
        return OWNER_KEY if self.owner else f"user {self.name}"

    @property
    def sees_all(self) -> bool:
        """Whether other users' jobs exist for the caller."""
        return self.may(Scope.OPERATE)


def owner(name: str) -> Principal:
    """The daemon's own user."""
    return Principal(name=name, scopes=frozenset(Scope), owner=True)
