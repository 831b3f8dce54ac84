"""Input files: the catalogue's knowledge of them, and how they reach the sites where components read them.

The core decides which file goes where and when; here an order is performed, or refused with a reason.
"""

from __future__ import annotations

from koala.files.area.directory import AreaDirectory
from koala.files.area.interface import FileArea, Measured
from koala.files.area.local import LocalArea
from koala.files.area.remote import RemoteArea
from koala.files.catalogue import CatalogueEntry, Replica, expired, forget, register, replicate
from koala.files.errors import (
    ChangedFileError,
    ChecksumError,
    FilesError,
    LargeOutputError,
    MissingReplicaError,
    NoSpaceError,
    PathError,
    TransferCancelledError,
    TransferInterruptedError,
    UnreachableSiteError,
    UnwritableError,
)
from koala.files.hosts import Host
from koala.files.transfer.mover import FileMover
from koala.files.transfer.order import Order, Progress, TransferResult, order_for

__all__ = [
    "AreaDirectory",
    "CatalogueEntry",
    "ChangedFileError",
    "ChecksumError",
    "FileArea",
    "FileMover",
    "FilesError",
    "Host",
    "LargeOutputError",
    "LocalArea",
    "Measured",
    "MissingReplicaError",
    "NoSpaceError",
    "Order",
    "PathError",
    "Progress",
    "RemoteArea",
    "Replica",
    "TransferCancelledError",
    "TransferInterruptedError",
    "TransferResult",
    "UnreachableSiteError",
    "UnwritableError",
    "expired",
    "forget",
    "order_for",
    "register",
    "replicate",
]
