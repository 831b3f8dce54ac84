"""The transactional outbox: commands that are on record and not known to have been performed.

Performing one again does no harm, so that what was performed is put on record with the next batch and not at once.
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
        self._collections: dict[Token, list[int]] = {}  # the core repeats an order that takes long
        self._settled: list[int] = []
        for entry in entries:
            self.add(entry.seq, entry.body)  # type: ignore[arg-type]  # these entries are commands

    def __len__(self) -> int:
        return len(self.commands)

    def add(self, seq: int, command: AnyCommand) -> None:
        """The command is on record."""
        self.commands[seq] = command
        if isinstance(command, StartTransfer):
            self._transfers[command.transfer] = seq
        elif isinstance(command, CollectOutputs):
            self._collections.setdefault(command.token, []).append(seq)

    def settle(self, seq: int) -> None:
        """The command has been performed. Settled twice it is settled once."""
        command = self.commands.pop(seq, None)
        if command is None:
            return
        self._settled.append(seq)
        if isinstance(command, StartTransfer):
            self._transfers.pop(command.transfer, None)
        elif isinstance(command, CancelTransfer):
            self.transfer_is_over(command.transfer)

    def transfer_is_over(self, transfer: TransferId) -> None:
        """The transfer has ended, and that goes on record, or it was cancelled: it is not to be performed."""
        seq = self._transfers.get(transfer)
        if seq is not None:
            self.settle(seq)

    def collection_is_over(self, token: Token) -> None:
        """The outputs of a component are collected, and that goes on record, or its job is over."""
        for seq in self._collections.pop(token, ()):
            self.settle(seq)

    def job_is_over(self, job: JobId) -> None:
        """What the job made is not to be collected any more."""
        prefix = f"{job}."
        for token in [token for token in self._collections if token.startswith(prefix)]:
            self.collection_is_over(token)

    def has_settled(self) -> bool:
        """Whether something was performed that the store does not know of."""
        return bool(self._settled)

    def take_settled(self) -> tuple[int, ...]:
        """What was performed since the last time, for the store."""
        settled, self._settled = tuple(self._settled), []
        return settled
