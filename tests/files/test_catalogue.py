"""What the catalogue takes and refuses, and what the scheduler is told."""

from __future__ import annotations

import pytest

from koala.files import (
    CatalogueEntry,
    FilesError,
    MissingReplicaError,
    Order,
    Replica,
    forget,
    order_for,
    register,
    replicate,
)
from koala.files.catalogue import REPLICAS_MAX
from koala.model.messages import FileChanged, StartTransfer
from koala.model.request import TEXT_CHARACTERS_MAX

ONE, OTHER = "1" * 64, "2" * 64


def replica(site: str, size: int = 10, checksum: str = ONE, url: str | None = None) -> Replica:
    return Replica(site=site, size_bytes=size, checksum=checksum, url=url)


def registered() -> CatalogueEntry:
    return register("data", replica("delft"), at=1.0)[0]


def test_each_change_gives_a_new_entry_and_tells_the_scheduler() -> None:
    first, told = register("data", replica("delft"), at=1.0)
    assert told == FileChanged(at=1.0, file="data", size_bytes=10, replicas=("delft",))
    second, told = replicate(first, replica("leiden"), at=2.0)
    assert told.replicas == second.sites == ("delft", "leiden")
    assert first.sites == ("delft",)
    again, told = replicate(second, replica("delft"), at=3.0)
    assert again.sites == ("delft", "leiden")
    third, told = forget(second, "delft", at=4.0)
    assert told.replicas == third.sites == ("leiden",)
    _, told = forget(second, at=5.0)
    assert told == FileChanged(at=5.0, file="data", size_bytes=10, replicas=())


def test_a_replica_of_another_size_or_checksum_is_refused_and_both_are_named() -> None:
    with pytest.raises(
        FilesError, match=r"'data' at leiden: it has 11 bytes and the catalogue says 10; bring"
    ) as caught:
        replicate(registered(), replica("leiden", size=11), at=2.0)
    assert caught.value.for_user().startswith("file 'data' at leiden")
    with pytest.raises(FilesError, match=f"SHA-256 is {OTHER} and the catalogue says {ONE}"):
        replicate(registered(), replica("leiden", checksum=OTHER), at=2.0)


def test_what_is_no_file_is_not_registered() -> None:
    with pytest.raises(FilesError, match="1 to 65536 characters"):
        register("", replica("delft"), at=1.0)
    with pytest.raises(FilesError, match="TEXT_CHARACTERS_MAX"):
        register("x" * (TEXT_CHARACTERS_MAX + 1), replica("delft"), at=1.0)
    register("x" * TEXT_CHARACTERS_MAX, replica("delft"), at=1.0)
    with pytest.raises(FilesError, match="-1 bytes is not a size"):
        register("data", replica("delft", size=-1), at=1.0)
    with pytest.raises(FilesError, match="'abc' is not a SHA-256"):
        register("data", replica("delft", checksum="abc"), at=1.0)


def test_a_replica_that_is_not_there_cannot_be_forgotten() -> None:
    with pytest.raises(FilesError, match="at leiden: there is no replica here to forget; replicas are at: delft"):
        forget(registered(), "leiden", at=2.0)


def test_replicas_have_a_limit() -> None:
    entry = registered()
    for number in range(REPLICAS_MAX - 1):
        entry, _ = replicate(entry, replica(f"s{number}"), at=2.0)
    with pytest.raises(FilesError, match="REPLICAS_MAX"):
        replicate(entry, replica("one-more"), at=3.0)
    replicate(entry, replica("delft"), at=3.0)


def test_a_command_becomes_an_order_with_what_the_catalogue_knows() -> None:
    entry, _ = replicate(registered(), replica("leiden", url="memory://data"), at=2.0)
    command = StartTransfer(transfer="t3", file="data", source="leiden", target="utrecht", size_bytes=4, chunk=(2, 4))
    order = order_for(command, entry, rate_bytes_s=5.0)
    assert (order.url, order.checksum, order.chunk, order.rate_bytes_s) == ("memory://data", ONE, (2, 4), 5.0)
    gone, _ = forget(entry, "leiden", at=3.0)
    with pytest.raises(MissingReplicaError, match="no replica here; replicas are at: delft"):
        order_for(command, gone)


@pytest.mark.parametrize(
    ("size", "chunk", "rate"), [(-1, None, None), (5, (0, 4), None), (5, (-1, 5), None), (5, None, 0.0)]
)
def test_an_order_that_makes_no_sense_is_refused(
    size: int, chunk: tuple[int, int] | None, rate: float | None
) -> None:
    with pytest.raises(FilesError, match="'data' at b"):
        Order(transfer="t", file="data", source="a", target="b", size_bytes=size, chunk=chunk, rate_bytes_s=rate)
