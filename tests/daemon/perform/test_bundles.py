"""Archives of travelling files: what is dropped for old jobs is never what a new one has just asked for."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from koala.daemon.perform.bundles import Bundles
from koala.files.bundle import bundle_key
from koala.files.contents import ContentStore
from koala.model.travelling import TravellingFile

DATA = b"#!/bin/sh\n"
SUM = hashlib.sha256(DATA).hexdigest()


def files(name: str) -> tuple[TravellingFile, ...]:
    return (TravellingFile(path=name, size_bytes=len(DATA), checksum=SUM, mode=0o755),)


def test_an_archive_that_is_asked_for_while_old_ones_are_dropped_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        contents = ContentStore(tmp_path / "contents")
        bundles = Bundles(contents)
        await bundles.open()
        contents.append("anna", SUM, len(DATA), 0, DATA, 0.0)
        kept = await bundles.get(files("kept"))
        old = [await bundles.get(files(name)) for name in ("one", "two", "three")]
        dropping = asyncio.create_task(bundles.keep_only({bundle_key(files("kept"))}))
        await asyncio.sleep(0)  # it has begun
        anew = [await bundles.get(files(name)) for name in ("one", "two", "three")]
        await dropping
        assert kept.path.exists()
        assert all(each.path.exists() for each in anew)
        assert not any(each.path.exists() for each in old)
        assert [each.checksum for each in anew] == [each.checksum for each in old]

    asyncio.run(scenario())
