"""Input files: what the catalogue knows of them, and how they get to the sites where components read them.

Which file goes where and when is decided in the core; here an order is carried out, or refused with a reason.
"""

from __future__ import annotations

from koala.files.area import Area
from koala.files.areas import FileArea, Measured, SeenArea
from koala.files.catalogue import Entry, Replica, forget, register, replicate
from koala.files.copying import CopyMover
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
from koala.files.grid_moving import GridMover
from koala.files.mover import Brought, Mover, Order, Progress, order_for
from koala.files.places import Place
from koala.files.remote_area import RemoteArea

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
