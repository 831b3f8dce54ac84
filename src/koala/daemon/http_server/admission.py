"""Decides which connections are held, and which is closed when there are too many. It counts; it has no sockets.

A connection counts from the moment it is accepted, before TLS. Until a request on it was signed in it is a
stranger's. The number of strangers per address is limited, and one more closes the oldest. After signing in it counts
for its user. When there is no room at all, the oldest stranger of the address with the most strangers makes room;
without strangers the new connection is refused. So a caller that opens connections and says nothing locks nobody out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from koala.daemon.api.limits import CONNECTIONS_MAX, CONNECTIONS_PER_USER_MAX, STRANGERS_PER_ADDRESS_MAX
from koala.model.errors import TooManyError


class Visit:
    """One connection that is held. ``drop`` closes it."""

    __slots__ = ("drop", "network", "user")

    def __init__(self, network: str, drop: Callable[[], None]) -> None:
        self.network = network
        self.drop = drop
        self.user: str | None = None  # None for a stranger


class Admission:
    """The connections at one socket. A ``trusted`` socket has no strangers, and no connection makes room for
    another."""

    def __init__(
        self,
        *,
        connections_max: int = CONNECTIONS_MAX,
        strangers_per_address_max: int = STRANGERS_PER_ADDRESS_MAX,
        connections_per_user_max: int = CONNECTIONS_PER_USER_MAX,
        trusted: bool = False,
    ) -> None:
        self.connections_max = connections_max
        self._strangers_per_address_max = strangers_per_address_max
        self._connections_per_user_max = connections_per_user_max
        self._trusted = trusted
        self._visits: set[Visit] = set()
        self._strangers: dict[str, dict[Visit, None]] = {}  # by network, the oldest first
        self._users: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """The number of connections held."""
        return len(self._visits)

    def enter(self, network: str, drop: Callable[[], None]) -> Visit | None:
        """Admit a new connection from this network, see ``network_of``. Returns None if there is no room for it."""
        if not self._trusted and len(self._strangers.get(network, ())) >= self._strangers_per_address_max:
            self._make_room(network)
        elif self.count >= self.connections_max:
            if not self._strangers:
                return None
            self._make_room(max(self._strangers, key=lambda each: len(self._strangers[each])))
        visit = Visit(network, drop)
        self._visits.add(visit)
        if not self._trusted:
            self._strangers.setdefault(network, {})[visit] = None
        return visit

    def identify(self, visit: Visit, user: str | None) -> None:
        """Count the connection for the user that a request on it was signed in as, None for nobody. Raises
        ``TooManyError`` if the user has too many connections; then it remains a stranger's."""
        if self._trusted or visit.user == user or visit not in self._visits:
            return
        if user is not None and self._users[user] >= self._connections_per_user_max:
            raise TooManyError(
                f"this user has {self._connections_per_user_max} connections open already "
                "(CONNECTIONS_PER_USER_MAX); close some, or use them again"
            )
        self._forget(visit)
        visit.user = user
        if user is None:
            self._strangers.setdefault(visit.network, {})[visit] = None
        else:
            self._users[user] += 1

    def leave(self, visit: Visit) -> None:
        """Stop counting a closed connection. Idempotent."""
        if visit in self._visits:
            self._visits.remove(visit)
            if not self._trusted:
                self._forget(visit)

    def _forget(self, visit: Visit) -> None:
        if visit.user is not None:
            self._users[visit.user] -= 1
            if not self._users[visit.user]:
                del self._users[visit.user]
            return
        own = self._strangers[visit.network]
        del own[visit]
        if not own:
            del self._strangers[visit.network]

    def _make_room(self, network: str) -> None:
        oldest = next(iter(self._strangers[network]))
        self.leave(oldest)
        oldest.drop()
