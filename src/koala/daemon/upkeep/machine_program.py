"""What a machine can do now: a small program that runs there, in the shell that Koala uses anyway.

Its text is sent to the site, so that it needs no more than an old Python 3 and its standard library. It prints lines
of words: ``machine PROCESSORS LOAD``, and ``rate STEPS`` where it was asked how fast a processor is.
"""

import os
import sys
import time

STEPS = 100_000
TRIES = 5


def rate() -> float:
    """Return how many steps of a multiplication and an addition a processor does in a second, at its best."""
    best = float("inf")
    for _ in range(TRIES):
        value, begun = 0.0, time.process_time()
        for _ in range(STEPS):
            value = value * 0.5 + 1.0
        best = min(best, time.process_time() - begun)
    return STEPS / max(best, 1e-9)


def main() -> None:
    """The argument says whether to time."""
    sys.stdout.write(f"machine {os.cpu_count() or 1} {os.getloadavg()[0]}\n")
    if sys.argv[1] == "1":
        sys.stdout.write(f"rate {rate()}\n")


if __name__ == "__main__":
    main()
