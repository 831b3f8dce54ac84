"""The code of a process for long computations: it answers questions on its standard streams, one at a time."""

from __future__ import annotations

import os
import pickle
import queue
import resource
import signal
import struct
import sys
import threading
import traceback
from typing import BinaryIO

# The event loop takes precedence if processors are scarce.
NICENESS = 10

# A question or an answer follows its size; the first sign of a process is this word.
SIZE = struct.Struct("<Q")
READY = b"ready"


def answer_questions(source: BinaryIO, target: BinaryIO, work_s_max: float) -> None:
    """Answer until there are no more questions. The process ends at once when nobody is there, or when an answer
    takes more processor time than it may."""
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(source, waiting), daemon=True).start()
    target.write(READY)
    target.flush()
    while True:
        answer = _answer_to(waiting.get(), work_s_max)
        target.write(SIZE.pack(len(answer)) + answer)
        target.flush()


def _listen(source: BinaryIO, waiting: queue.SimpleQueue[bytes]) -> None:
    while len(head := source.read(SIZE.size)) == SIZE.size:
        (size,) = SIZE.unpack(head)
        question = source.read(size)
        if len(question) < size:
            break
        waiting.put(question)
    os._exit(0)  # the daemon is gone, whatever is being worked on


def _answer_to(question: bytes, work_s_max: float) -> bytes:
    try:
        work, arguments = pickle.loads(question)  # noqa: S301
        signal.setitimer(signal.ITIMER_PROF, work_s_max)  # SIGPROF ends the process; what was imported does not count
        return pickle.dumps((work(*arguments), None))
    except MemoryError:
        raise
    except Exception:
        return pickle.dumps((None, traceback.format_exc()))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def main() -> None:
    """Run one worker, on its standard streams."""
    memory_bytes, work_s_max = int(sys.argv[1]), float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that is printed must look like an answer
    answer_questions(sys.stdin.buffer, target, work_s_max)


if __name__ == "__main__":
    main()
