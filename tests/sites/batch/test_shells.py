"""What is done at a site works in every shell that may be its ``sh``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.launch import Go, InputLink
from koala.model.messages import Outcome
from koala.sites import Stream, remote_shell
from tests.support.paper_batch import PaperSite, component
from tests.support.real_programs import real_program

DATA = bytes(range(256)) + b"% \\ ' $HOME\n"


@pytest.mark.parametrize("shell", [("dash",), ("bash", "--posix"), ("busybox", "sh")])
def test_a_component_lives_and_dies_in_every_shell(
    tmp_path: Path, shell: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    real_program(shell[0])
    monkeypatch.setattr(remote_shell, "_SHELL", shell)

    async def scenario() -> None:
        root = tmp_path / "it's a $place"
        root.mkdir()
        async with PaperSite(root) as one:
            (one.root / "files/data").write_bytes(DATA)
            await one.begin("1.1")
            await one.site.deliver("1.1", "reply", DATA)
            assert (one.home("1.1") / "inbox/reply").read_bytes() == DATA
            await one.site.release("1.1", Go(links=(InputLink(source="data", destination="in/data"),)))
            assert (one.home("1.1") / "workspace/in/data").read_bytes() == DATA
            (one.home("1.1") / "stdout").write_bytes(DATA)
            assert await one.site.output("1.1", Stream.STDOUT, 7) == DATA[7:]
            one.write("1.1", "outbox/question", "why\n")
            await one.until(lambda: bool(one.mail))
            one.play_end("1.1", "exited 6")
            assert (await one.ended("1.1")).exit_code == 6
            await one.site.forget("1.1")
            await one.start(component("1.2"))
            await one.site.abort("1.2", reason="it's \\n enough")
            assert (await one.ended("1.2")).reason == "it's \\n enough"
            await one.site.ask(["1.3"])
            assert (await one.ended("1.3")).outcome is Outcome.ABSENT
            assert (await one.site.probe()).processors == 8
        async with one.again() as one:
            assert await one.site.held() == ()

    asyncio.run(scenario())
