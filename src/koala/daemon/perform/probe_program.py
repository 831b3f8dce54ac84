"""Probes the link from one site to another: a small program that runs at both of them.

Its text is sent to the sites, so that it needs only an old Python 3 and its standard library. One end listens for a
short while, the other times some connections and then sends a bounded stream. Each end prints its result as words on
one line; a line that begins with ``error`` explains a failure.
"""

import socket
import sys
import time

CHUNK_BYTES = 65_536
# This many connections are made, and the shortest counts.
CONNECTIONS = 5
# The listener may come up a little after the sender.
LISTENER_S = 10.0
CONNECT_S = 5.0


def address(host: str, network: str) -> str:
    """Return where other sites reach this machine: at the given host, at its address in the network, or by its
    name."""
    name = host or socket.getfqdn()
    if not host and network:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
            towards.connect((network.split("/")[0], 9))  # sends nothing, and reveals which address would be used
            name = towards.getsockname()[0]
    with socket.socket() as free:
        free.bind(("", 0))
        return f"at {name} {free.getsockname()[1]}"


def listen(port: int, secret: bytes, stream_s: float, limit_s: float) -> str:
    """Wait for the stream, and measure it for at most ``stream_s``: in its second half, since a connection begins
    slowly."""
    until = time.monotonic() + limit_s
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", port))
        listener.listen(8)
        while True:
            listener.settimeout(max(0.01, until - time.monotonic()))
            with listener.accept()[0] as stream:
                stream.settimeout(max(0.01, until - time.monotonic()))
                if _begins_with(stream, secret):  # another one was only timed, or is not ours
                    return _received(stream, stream_s)


def _begins_with(stream: socket.socket, secret: bytes) -> bool:
    begin = b""
    while len(begin) < len(secret):
        more = stream.recv(len(secret) - len(begin))
        if not more:
            return False
        begin += more
    return begin == secret


def _received(stream: socket.socket, stream_s: float) -> str:
    marks = [(time.monotonic(), 0)]
    while marks[-1][0] < marks[0][0] + stream_s:
        more = stream.recv(CHUNK_BYTES)
        if not more:
            break
        marks.append((time.monotonic(), marks[-1][1] + len(more)))
    end_s, size_bytes = marks[-1]
    if not size_bytes:
        return "error nothing arrived"
    middle_s, middle_bytes = next(mark for mark in marks if 2 * mark[1] >= size_bytes)
    if end_s <= middle_s:
        middle_s, middle_bytes = marks[0]
    return f"received {size_bytes} {(size_bytes - middle_bytes) / max(end_s - middle_s, 1e-6):.1f}"


def send(host: str, port: int, secret: bytes, size_bytes: int, stream_s: float, limit_s: float) -> str:
    """Time connections, then send for at most ``stream_s`` and at most ``size_bytes``."""
    until = time.monotonic() + LISTENER_S
    shortest_s = CONNECT_S
    made = 0
    while made < CONNECTIONS:
        begin = time.monotonic()
        try:
            socket.create_connection((host, port), CONNECT_S).close()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
            continue
        shortest_s = min(shortest_s, time.monotonic() - begin)
        made += 1
    with socket.create_connection((host, port), CONNECT_S) as stream:
        stream.settimeout(limit_s)
        stream.sendall(secret)
        chunk, sent, begin = bytes(CHUNK_BYTES), 0, time.monotonic()
        try:
            while sent < size_bytes and time.monotonic() < begin + stream_s:
                sent += stream.send(chunk[: size_bytes - sent])
            stream.shutdown(socket.SHUT_WR)
            stream.recv(1)
        except ConnectionError:  # the other end has seen enough
            pass
    return f"latency {shortest_s / 2:.9f}"


def main(words: list) -> str:  # type: ignore[type-arg]  # an old Python has no list[str]
    """Return the line that the program prints."""
    try:
        if words[0] == "address":
            return address(words[1], words[2])
        if words[0] == "listen":
            return listen(int(words[1]), words[2].encode(), float(words[3]), float(words[4]))
        return send(words[1], int(words[2]), words[3].encode(), int(words[4]), float(words[5]), float(words[6]))
    except OSError as error:
        where = f" to {words[1]} port {words[2]}" if words[0] == "send" else ""
        return f"error {words[0]}{where}: {error}"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
