"""Input files: what the catalogue knows of them, and how they get to the sites where components read them.

Which file goes where and when is decided in the core; here an order is carried out, or refused with a reason.
"""

from __future__ import annotations

from koala.files.area import Area
from koala.files.catalogue import Entry, Replica, forget, register, replicate
from koala.files.copying import CopyMover
from koala.files.errors import (
    ChangedFileError,
    ChecksumError,
    FilesError,
    MissingFileError,
    NoSpaceError,
    TransferCancelledError,
    TransferInterruptedError,
    UnwritableError,
)
from koala.files.mover import Brought, Mover, Order, Progress, order_for

__all__ = [
    "Area",
    "Brought",
    "ChangedFileError",
    "ChecksumError",
    "CopyMover",
    "Entry",
    "FilesError",
    "MissingFileError",
    "Mover",
    "NoSpaceError",
    "Order",
    "Progress",
    "Replica",
    "TransferCancelledError",
    "TransferInterruptedError",
    "UnwritableError",
    "forget",
    "order_for",
    "register",
    "replicate",
]
