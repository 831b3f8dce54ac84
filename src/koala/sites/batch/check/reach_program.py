"""A small program that tests connections between nodes: it runs on one node of each site of a check, all at once.

Its text is sent to the sites, so it needs only an old Python 3 and its standard library. It listens at a port that
the system chooses, and writes the port into the file ``port``. When the file ``targets`` exists, with a name and a
port on each line, it tries the targets and writes one line for each into ``reached``: the word ``reached``,
``unresolved`` or ``unreached``, followed by the error. It ends when the file ``end`` exists or its time is over.
"""

import pathlib
import socket
import sys

CONNECT_S = 5.0
LOOK_EVERY_S = 0.2


def tried(name: str, port: int) -> str:
    """Return the result for one target."""
    try:
        found = socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        return f"unresolved {error}"
    try:
        socket.create_connection((str(found[0][4][0]), port), CONNECT_S).close()
    except OSError as error:
        return f"unreached {found[0][4][0]} {error}"
    return "reached"


def put(name: str, text: str) -> None:
    """Write a file so that it appears complete or not at all."""
    part = pathlib.Path(f"{name}.part")
    part.write_text(text)
    part.rename(name)


def main(limit_s: float) -> None:
    """Listen, try the others, and stay until all are done. Time passes while it waits for connections."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen(128)
        listener.settimeout(LOOK_EVERY_S)
        put("port", f"{listener.getsockname()[1]}\n")
        has_tried = False
        for _ in range(int(limit_s / LOOK_EVERY_S)):
            if pathlib.Path("end").exists():
                return
            if not has_tried and pathlib.Path("targets").exists():
                targets = [line.split() for line in pathlib.Path("targets").read_text().splitlines()]
                put("reached", "".join(f"{tried(name, int(port))}\n" for name, port in targets))
                has_tried = True
            try:
                listener.accept()[0].close()
            except OSError:
                continue  # no connection for a while


if __name__ == "__main__":
    main(float(sys.argv[1]))
