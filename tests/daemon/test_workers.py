"""Computations in processes of their own: they are kept, given up when late, and end with the daemon."""

from __future__ import annotations

import asyncio
import errno
import operator
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from koala.daemon.workers.pool import WorkerPool, WorkError
from koala.model.errors import TooLargeError, UnavailableError
from tests.support.live_daemon import until

WAIT_S = 120.0


def alive(pid: int) -> bool:
    """Whether the process is there and not merely waiting to be forgotten."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False


def test_work_is_done_elsewhere_by_a_process_that_is_kept_until_the_pool_closes() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S):
            pool = WorkerPool(workers_max=1)
            first = await pool.run(os.getpid)
            assert first != os.getpid()
            assert await pool.run(os.getpid) == first
            assert await pool.run(os.getpriority, os.PRIO_PROCESS, 0) > os.getpriority(os.PRIO_PROCESS, 0)
            with pytest.raises(WorkError, match="a defect"):
                await pool.run(operator.getitem, {}, "a defect")
            assert await pool.run(os.getpid) == first
            await pool.close()
            assert not alive(first)
            with pytest.raises(UnavailableError):
                await pool.run(os.getpid)

    asyncio.run(scenario())


def test_a_process_that_died_while_idle_is_replaced_and_nobody_is_told() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S):
            pool = WorkerPool(workers_max=1)
            first = await pool.run(os.getpid)
            os.kill(first, signal.SIGKILL)
            while pool._idle[0].is_alive:
                await asyncio.sleep(0.01)
            assert await pool.run(os.getpid) != first
            await pool.close()

    asyncio.run(scenario())


def test_where_no_process_can_be_started_callers_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none_left(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S):
            pool = WorkerPool(workers_max=1)
            with monkeypatch.context() as full:
                full.setattr(asyncio, "create_subprocess_exec", none_left)
                with pytest.raises(UnavailableError, match=r"temporarily.*try again"):
                    await pool.run(os.getpid)
            assert await pool.run(os.getpid) != os.getpid()
            await pool.close()

    asyncio.run(scenario())


def test_work_that_is_late_takes_too_much_or_dies_is_told_and_another_process_goes_on() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S):
            pool = WorkerPool(workers_max=1, work_s_max=0.5, work_bytes_max=512 * 1024**2)
            first = await pool.run(os.getpid)
            with pytest.raises(TooLargeError, match="WORK_S_MAX"):
                await pool.run(sum, range(10**12))
            assert not alive(first)
            with pytest.raises(TooLargeError, match="WORK_BYTES_MAX"):
                await pool.run(bytes, 1024**3)
            with pytest.raises(TooLargeError, match="has died"):
                await pool.run(os._exit, 1)
            assert await pool.run(os.getpid) != first
            await pool.close()

    asyncio.run(scenario())


def test_work_for_which_the_machine_is_too_busy_may_be_asked_for_again() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S):
            pool = WorkerPool(workers_max=1, work_s_max=0.5, wait_s_max=1.0)
            with pytest.raises(UnavailableError, match=r"WORK_WAIT_S_MAX.*try again"):
                await pool.run(time.sleep, 3_600)
            await pool.close()

    asyncio.run(scenario())


def test_time_without_the_processor_is_not_held_against_the_work() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S):
            pool = WorkerPool(workers_max=1, work_s_max=0.2)
            await pool.run(time.sleep, 0.6)
            assert await pool.run(operator.add, 1, 2) == 3
            await pool.close()

    asyncio.run(scenario())


def test_whoever_stops_waiting_ends_the_work() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S):
            pool = WorkerPool(workers_max=1)
            pid = await pool.run(os.getpid)
            asked = asyncio.create_task(pool.run(time.sleep, 3_600))
            await asyncio.sleep(0.1)
            asked.cancel()
            await asyncio.wait([asked])
            assert not alive(pid)
            await pool.close()

    asyncio.run(scenario())


def test_a_process_ends_in_the_middle_of_its_work_when_the_daemon_is_killed() -> None:
    read_end, write_end = os.pipe()
    if os.fork() == 0:  # a daemon that dies without a word

        async def work() -> None:
            pool = WorkerPool(workers_max=1)
            os.write(write_end, str(await pool.run(os.getpid)).encode())
            asyncio.create_task(pool.run(time.sleep, 3_600))  # noqa: RUF006
            await asyncio.sleep(0.1)
            os._exit(9)

        asyncio.run(work())
    os.close(write_end)
    with os.fdopen(read_end, "rb") as told:
        pid = int(told.read())
    os.wait()
    until(lambda: not alive(pid), "the process is gone")


def test_a_process_that_reads_texts_loads_neither_the_store_nor_the_server() -> None:
    """It is started while somebody waits for what it reads."""
    text = "import sys, koala.daemon.service.submitted_texts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "koala.descriptions" in loaded
    assert not loaded & {"fastapi", "koala.core", "koala.store", "sqlalchemy", "starlette"}
