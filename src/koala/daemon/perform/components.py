"""The components that sites hold according to the record: their rows, and whether they are still to run."""

from __future__ import annotations

from collections.abc import Iterable

from koala.model.launch import NodeShare
from koala.model.messages import Token
from koala.model.request import JobId, SiteName
from koala.store.rows import ComponentRow


class ComponentRegister:
    """Fed by the record and by the commands that abort; all who perform commands read it.

    A component is held from the record of its start to the record of its end. The row of an ended component remains
    while another of the same run is held, since that one may still need its place.
    """

    def __init__(self) -> None:
        self._rows: dict[Token, ComponentRow] = {}
        self._runs: dict[tuple[JobId, int], dict[Token, None]] = {}
        self._aborted: set[Token] = set()
        self._nodes: dict[Token, tuple[NodeShare, ...]] = {}

    def reset(self, rows: Iterable[ComponentRow], aborted: Iterable[Token]) -> None:
        """Reload from the record; ``aborted`` are the components that are being aborted."""
        self._rows.clear()
        self._runs.clear()
        self._nodes.clear()
        self._aborted = set(aborted)
        # The ended ones last: each stays only if one of its run is held.
        for row in sorted(rows, key=lambda row: row.ended_at is not None):
            self.record(row)

    def record(self, row: ComponentRow) -> None:
        """Add a row that is on record."""
        run = self._runs.setdefault((row.job, row.run), {})
        self._rows[row.token] = row
        run[row.token] = None
        if row.ended_at is None:
            return
        self._aborted.discard(row.token)
        if all(self._rows[token].ended_at is not None for token in run):
            del self._runs[row.job, row.run]
            for token in run:
                del self._rows[token]
                self._nodes.pop(token, None)

    def abort(self, token: Token) -> None:
        """Mark a component as aborted by a recorded command: it must no longer start or run."""
        if self.is_held(token):
            self._aborted.add(token)

    def keep_nodes(self, token: Token, nodes: tuple[NodeShare, ...]) -> None:
        """Keep the nodes of a component, as its site reported them."""
        if token in self._rows:
            self._nodes[token] = nodes

    def nodes_of(self, token: Token) -> tuple[NodeShare, ...] | None:
        """Return the kept nodes of a component; None if none were kept since the start of the daemon."""
        return self._nodes.get(token)

    def get(self, token: Token) -> ComponentRow | None:
        """Return a component that is held, or whose run is."""
        return self._rows.get(token)

    def is_held(self, token: Token) -> bool:
        """Return True if its start is on record and its end is not."""
        row = self._rows.get(token)
        return row is not None and row.ended_at is None

    def is_wanted(self, token: Token) -> bool:
        """Return True if it is held and no command aborts it."""
        return self.is_held(token) and token not in self._aborted

    def is_released(self, token: Token) -> bool:
        """Return True if it is wanted and its barrier is open."""
        return self.is_wanted(token) and self._rows[token].released_at is not None

    def held_at(self, site: SiteName) -> list[Token]:
        """Return all components that a site holds."""
        return [token for token, row in self._rows.items() if row.site == site and row.ended_at is None]

    def released_with(self, token: Token) -> list[ComponentRow]:
        """Return all components that were released with this one, by part, including those that have ended since."""
        own = self._rows[token]
        rows = [self._rows[other] for other in self._runs[own.job, own.run]]
        return sorted((row for row in rows if row.released_at is not None), key=lambda row: row.part)
