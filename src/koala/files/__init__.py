"""Input files: what the catalogue knows of them, and how they get to the sites where components read them.

Which file goes where and when is decided in the core; here an order is carried out, or refused with a reason.
"""

from __future__ import annotations

from koala.files.area.interface import FileArea, Measured, SeenArea
from koala.files.area.layout import Area
from koala.files.area.remote import RemoteArea
from koala.files.catalogue import Entry, Replica, forget, register, replicate
from koala.files.errors import (
    ChangedFileError,
    ChecksumError,
    FilesError,
    MissingFileError,
    NoSpaceError,
    PathError,
    TransferCancelledError,
    TransferInterruptedError,
    UnreachableError,
    UnwritableError,
)
from koala.files.hosts import Place
from koala.files.transfer.copying import CopyMover
from koala.files.transfer.grid import GridMover
from koala.files.transfer.interface import Brought, Mover, Order, Progress, order_for

__all__ = [
    "Area",
    "Brought",
    "ChangedFileError",
    "ChecksumError",
    "CopyMover",
    "Entry",
    "FileArea",
    "FilesError",
    "GridMover",
    "Measured",
    "MissingFileError",
    "Mover",
    "NoSpaceError",
    "Order",
    "PathError",
    "Place",
    "Progress",
    "RemoteArea",
    "Replica",
    "SeenArea",
    "TransferCancelledError",
    "TransferInterruptedError",
    "UnreachableError",
    "UnwritableError",
    "forget",
    "order_for",
    "register",
    "replicate",
]
