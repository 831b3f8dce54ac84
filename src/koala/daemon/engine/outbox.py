"""The transactional outbox: commands on record that are not known to have been performed.

Performing a command again does no harm, so its completion is put on record with the next batch and not at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from koala.model.messages import (
    AnyCommand,
    CancelTransfer,
    CollectOutputs,
    StartTransfer,
    Token,
    TransferId,
)
from koala.model.request import JobId
from koala.store.rows import JournalRow


class Outbox:
    """The commands to be performed, by sequence number, in order."""

    def __init__(self, entries: Iterable[JournalRow] = ()) -> None:
        self.commands: dict[int, AnyCommand] = {}
        self._transfers: dict[TransferId, int] = {}
        self._collections: dict[Token, list[int]] = {}  # the core repeats a slow order
        self._settled: list[int] = []
        for entry in entries:
            self.add(entry.seq, entry.body)  # type: ignore[arg-type]  # these entries are commands

    def __len__(self) -> int:
        return len(self.commands)

    def add(self, seq: int, command: AnyCommand) -> None:
        """Add a command that is on record."""
        self.commands[seq] = command
        if isinstance(command, StartTransfer):
            self._transfers[command.transfer] = seq
        elif isinstance(command, CollectOutputs):
            self._collections.setdefault(command.token, []).append(seq)

    def settle(self, seq: int) -> None:
        """Mark a command as performed. Idempotent."""
        command = self.commands.pop(seq, None)
        if command is None:
            return
        self._settled.append(seq)
        if isinstance(command, StartTransfer):
            self._transfers.pop(command.transfer, None)
        elif isinstance(command, CancelTransfer):
            self.transfer_is_over(command.transfer)

    def transfer_is_over(self, transfer: TransferId) -> None:
        """Settle the command of a transfer that was cancelled, or whose end goes on record."""
        seq = self._transfers.get(transfer)
        if seq is not None:
            self.settle(seq)

    def collection_is_over(self, token: Token) -> None:
        """Settle the collection of a component's outputs, when its end goes on record or its job is over."""
        for seq in self._collections.pop(token, ()):
            self.settle(seq)

    def job_is_over(self, job: JobId) -> None:
        """Settle all collections of a job that is over."""
        prefix = f"{job}."
        for token in [token for token in self._collections if token.startswith(prefix)]:
            self.collection_is_over(token)

    def has_settled(self) -> bool:
        """Return True if the store has yet to record a performed command."""
        return bool(self._settled)

    def take_settled(self) -> tuple[int, ...]:
        """Return the commands performed since the last call, for the store."""
        settled, self._settled = tuple(self._settled), []
        return settled
