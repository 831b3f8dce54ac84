"""Long computations in separate processes, with a deadline: reading and writing large texts, clustering tasks.

A thread would not do: it shares one interpreter with the event loop, and a long step in it keeps everybody waiting.
The processes are few; they are started when first needed and then kept. A process that is late or dies is replaced,
and its caller gets an error. They end with the daemon, even if it is killed.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from koala.daemon.workers.process import READY, SIZE
from koala.model.errors import TooLargeError, UnavailableError

# At most this many computations run at once; others wait.
WORKERS_MAX = 2
# A computation that takes more processor time is given up, and its process ended.
WORK_S_MAX = 60.0
# A computation that gets too little of a busy machine is given up after this long, and may be requested again.
WORK_WAIT_S_MAX = 240.0
# The memory limit of a process.
WORK_BYTES_MAX = 4 * 1024**3
# A process that is not ready after this long is given up.
START_S_MAX = 120.0

T = TypeVar("T")


class Workers(Protocol):
    """Computes beside the event loop."""

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a module's function, whose arguments and result can be pickled."""
        ...

    async def close(self) -> None:
        """Stop computing."""
        ...


class WorkError(RuntimeError):
    """The function raised; the message is its trace."""


class WorkerPool:
    """``Workers`` in processes. Lives in one event loop."""

    def __init__(
        self,
        *,
        workers_max: int = WORKERS_MAX,
        work_s_max: float = WORK_S_MAX,
        wait_s_max: float = WORK_WAIT_S_MAX,
        work_bytes_max: int = WORK_BYTES_MAX,
    ) -> None:
        self._work_s_max = work_s_max
        self._wait_s_max = wait_s_max
        self._work_bytes_max = work_bytes_max
        self._permits = asyncio.Semaphore(workers_max)
        self._idle: list[_Worker] = []
        self._closed = False

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return the result of the function. Raises ``TooLargeError`` if it takes too much processor time or memory,
        ``UnavailableError`` if the machine is too busy for it, and ``WorkError`` if it raises."""
        async with self._permits:
            if self._closed:
                raise UnavailableError("the daemon is stopping; ask again when it is back")
            worker = await self._idle_or_new()
            kept = False
            try:
                result, error = await self._answer(worker, pickle.dumps((work, arguments)))
                kept = not self._closed
            finally:
                if kept:
                    self._idle.append(worker)
                else:
                    await worker.end()
        if error is not None:
            raise WorkError(error)
        found: T = result
        return found

    async def _idle_or_new(self) -> _Worker:
        """Return an idle worker, or a new one. A worker that died while idle is forgotten without an error."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            await worker.end()
        return await _Worker.start(self._work_bytes_max, self._work_s_max)

    async def _answer(self, worker: _Worker, question: bytes) -> tuple[Any, str | None]:
        try:
            async with asyncio.timeout(self._wait_s_max):
                # The pipe is ours, and so is what was pickled into it.
                answer: tuple[Any, str | None] = pickle.loads(await worker.ask(question))  # noqa: S301
                return answer
        except TimeoutError:
            raise UnavailableError(
                f"this was not done within {self._wait_s_max:g} s (WORK_WAIT_S_MAX): the machine is busy; "
                "try again later"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            if await worker.was_late():
                raise TooLargeError(
                    f"this took more than {self._work_s_max:g} s of processor time (WORK_S_MAX) and was given up; "
                    "ask for less at once"
                ) from None
            raise TooLargeError(
                f"the process that worked on this has died, perhaps for lack of memory: it may have "
                f"{self._work_bytes_max} bytes (WORK_BYTES_MAX); ask for less at once"
            ) from None

    async def close(self) -> None:
        """End the processes that are idle now, and the others when they are done. Idempotent."""
        self._closed = True
        while self._idle:
            await self._idle.pop().end()


class _Worker:
    """One process: questions go in and answers come out, one at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._questions = process.stdin
        self._answers = process.stdout

    @classmethod
    async def start(cls, memory_bytes: int, work_s_max: float) -> _Worker:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # nothing is imported from the daemon's working directory
                "-m",
                "koala.daemon.workers.process",
                str(memory_bytes),
                str(work_s_max),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the daemon, which then ends it
            )
        except OSError as error:
            raise UnavailableError(
                f"a process for long computations cannot be started: {error.strerror}; try again later"
            ) from None
        worker = cls(process)
        try:
            async with asyncio.timeout(START_S_MAX):
                await worker._answers.readexactly(len(READY))
        except (TimeoutError, asyncio.IncompleteReadError):
            await worker.end()
            raise UnavailableError("a process for long computations does not start; try again later") from None
        except BaseException:
            await worker.end()
            raise
        return worker

    @property
    def is_alive(self) -> bool:
        """True while its end is not known."""
        return self._process.returncode is None

    async def was_late(self) -> bool:
        """Return True if a process that has closed its pipes was ended for taking too much processor time."""
        return await self._process.wait() == -signal.SIGPROF

    async def ask(self, question: bytes) -> bytes:
        self._questions.write(SIZE.pack(len(question)) + question)
        await self._questions.drain()
        (size,) = SIZE.unpack(await self._answers.readexactly(SIZE.size))
        return await self._answers.readexactly(size)

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        self._questions.close()
        await self._process.wait()
