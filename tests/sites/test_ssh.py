"""Commands at a site that is reached over ssh: a real sshd, one shared connection, and every way to fail."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from koala.model.grid import BatchSettings
from koala.model.messages import Outcome, SiteSilent
from koala.sites import Stream, remote_shell
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.remote_shell import RemoteShell, ShellError, ShellTimeoutError
from koala.sites.shell_script import printing
from tests.support.batch_sites import opened_batch, until_true
from tests.support.live_sites import launch
from tests.support.slurm_cluster import slurm_cluster
from tests.support.ssh_server import HOST, SshServer, ssh_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path / "ssh") as running:
        yield running


@contextlib.asynccontextmanager
async def reached(server: SshServer, **environment: str) -> AsyncIterator[RemoteShell]:
    commands = RemoteShell(ssh=HOST, ssh_config=server.config, environment=environment)
    try:
        yield commands
    finally:
        await commands.close()


def test_a_text_runs_at_the_host_with_its_environment_and_its_exit_code(server: SshServer) -> None:
    async def scenario() -> None:
        async with reached(server, GREETING="it's; $HOME") as commands:
            answer = await commands.run('echo "$GREETING"; echo trouble >&2; cat; exit 3', timeout_s=120)
            assert (answer.code, answer.stdout, answer.stderr) == (3, b"it's; $HOME\n", b"trouble\n")

    asyncio.run(scenario())


def test_all_commands_share_one_connection_which_goes_with_the_runner(server: SshServer) -> None:
    def connections() -> int:
        return (server.root / "log").read_text().count("Accepted publickey")

    async def scenario() -> None:
        async with reached(server) as commands:
            await commands.run("true", timeout_s=120)
            await asyncio.gather(*(commands.run("true", timeout_s=120) for _ in range(12)))
            assert connections() == 1
        await until_true(lambda: "Disconnected" in (server.root / "log").read_text())

    asyncio.run(scenario())


def test_the_shell_of_the_account_starts_once_for_commands_that_follow_each_other(
    server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_shell, "COMMANDS_AT_A_TIME_MAX", 2)
    (server.root / ".bashrc").write_text("echo . >>$HOME/started; echo welcome; export MODULES=loaded; cd /\n")

    def started() -> int:
        return (server.root / "started").read_text().count(".")

    async def scenario() -> None:
        async with reached(server) as commands:
            for _ in range(5):
                answer = await commands.run("echo $MODULES; MODULES=; pwd; cd /tmp", timeout_s=120)
                assert (answer.stdout, answer.greeting) == (b"loaded\n/\n", b"welcome\n")
            assert started() == 1
            await asyncio.gather(*(commands.run("true", timeout_s=120) for _ in range(12)))
            assert started() == 2
            await commands.close()
            await commands.run("true", timeout_s=120)
            assert started() == 3

    asyncio.run(scenario())


def test_every_text_comes_whole_or_does_nothing_and_whatever_it_writes_is_its_own(server: SshServer) -> None:
    data = bytes(range(1, 256)) * 1000 + b"\n@end 0\n"

    async def scenario() -> None:
        async with reached(server) as commands:
            printed, exit_code = await asyncio.gather(
                commands.run(f"{printing(data)}\necho Grüße >&2", timeout_s=120),
                commands.run("exit 255", timeout_s=120),
            )
            assert (printed.stdout, printed.stderr) == (data, "Grüße\n".encode())
            assert exit_code.code == 255
            broken = await commands.run("touch $HOME/done\n} && { (", timeout_s=120)
            assert broken.code != 0
            assert not (server.root / "done").exists()
            assert (await commands.run("echo fine", timeout_s=120)).stdout == b"fine\n"

    asyncio.run(scenario())


def test_after_a_shell_was_killed_at_the_other_end_commands_get_another(server: SshServer) -> None:
    async def scenario() -> None:
        async with reached(server) as commands:
            with pytest.raises(ShellError, match=HOST):
                await commands.run("echo begun; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) $PPID $$", timeout_s=120)
            assert (await commands.run("echo fine", timeout_s=120)).stdout == b"fine\n"

    asyncio.run(scenario())


def test_a_shell_that_is_idle_or_old_goes_and_commands_get_another(
    server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shells() -> list[str]:
        found = subprocess.run(["pgrep", "-f", f"-F {server.config} .* exec sh$"], capture_output=True, text=True)
        return found.stdout.split()

    async def scenario() -> None:
        monkeypatch.setattr(remote_shell, "SHELL_AGE_S", 0)
        async with reached(server) as commands:
            await commands.run("true", timeout_s=120)
            assert shells() == []
            monkeypatch.setattr(remote_shell, "SHELL_AGE_S", 600)
            monkeypatch.setattr(remote_shell, "SHELL_IDLE_S", 0.01)
            await commands.run("true", timeout_s=120)
            await until_true(lambda: shells() == [])
            assert (await commands.run("echo fine", timeout_s=120)).stdout == b"fine\n"

    asyncio.run(scenario())


def test_a_caller_that_gives_up_leaves_a_shell_that_nobody_gets(server: SshServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with reached(server) as commands:
            call = asyncio.create_task(commands.run(f": >{tmp_path}/begun; sleep 3; echo late", timeout_s=120))
            await until_true((tmp_path / "begun").exists)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert call.cancelled()
            assert (await commands.run("echo fine", timeout_s=120)).stdout == b"fine\n"

    asyncio.run(scenario())


def test_a_command_that_takes_too_long_is_ended_at_both_ends(server: SshServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with reached(server) as commands:
            await commands.run("true", timeout_s=120)
            text = f"echo begun; echo $$ > {tmp_path}/pid; sleep 86.4; echo never"
            with pytest.raises(ShellTimeoutError, match="cluster: no answer within 3 s") as caught:
                await commands.run(text, timeout_s=3)
            assert caught.value.printed == b"begun\n"
            pid = (tmp_path / "pid").read_text().strip()
            await until_true(lambda: not Path(f"/proc/{pid}").exists())

    asyncio.run(scenario())


def test_a_host_that_refuses_the_connection_or_the_key_is_named_with_the_reason(server: SshServer) -> None:
    async def scenario() -> None:
        server.configure(f"IdentityFile {server.root}/host")
        async with reached(server) as commands:
            with pytest.raises(ShellError, match=r"cluster: .*Permission denied"):
                await commands.run("true", timeout_s=120)
        server.stop()
        async with reached(server) as commands:
            with pytest.raises(ShellError, match=r"cluster: .*Connection refused"):
                await commands.run("true", timeout_s=120)

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["-oProxyCommand=touch x", "a b", "a;b", ""])
def test_what_is_no_name_of_a_host_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="not the name of a host"):
        RemoteShell(ssh=host)


def test_a_slurm_site_behind_ssh_loses_nothing_when_the_connection_is_cut(server: SshServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        with slurm_cluster(nodes=1) as cluster:
            settings = BatchSettings(
                work_directory=str(tmp_path / "work"), ssh=HOST, environment=tuple(cluster.environment.items())
            )
            commands = RemoteShell(ssh=HOST, ssh_config=server.config, environment=cluster.environment)
            async with opened_batch(settings, SlurmSystem(settings), shell=commands) as one:
                assert (await one.run(launch("1.1", "echo over ssh"))).outcome is Outcome.DONE
                assert await one.stdout("1.1") == "over ssh\n"
                await one.start(launch("1.2", "exit 4"))
                await one.ready("1.2")
                server.stop()
                with pytest.raises(OSError, match=HOST):
                    await one.site.output("1.2", Stream.STDOUT, 0)
                await one.until(lambda: any(isinstance(event, SiteSilent) for event in one.events))
                assert await one.site.held() == ("1.2",)
                server.start()
                await one.release_when_it_answers("1.2")
                assert (await one.ended("1.2")).exit_code == 4

    asyncio.run(scenario())
