"""A program that meets its peers as ``torch.distributed`` does: by MASTER_ADDR, MASTER_PORT, ranks and WORLD_SIZE."""

from __future__ import annotations

import os
import socket
import sys
import time


def main() -> None:
    """Report the processes of every node to the master, which answers with the sum: it must be the world's size."""
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    nodes, rank = int(os.environ["NNODES"]), int(os.environ["NODE_RANK"])
    processes = int(os.environ["NPROC_PER_NODE"])
    if rank == 0:
        with socket.create_server(place) as server:
            server.settimeout(120)
            peers = [server.accept()[0] for _ in range(nodes - 1)]
            total = processes + sum(int(peer.recv(16)) for peer in peers)
            for peer in peers:
                peer.sendall(str(total).encode())
                peer.close()
    else:
        with _connect(place) as master:
            master.sendall(str(processes).encode())
            total = int(master.recv(16))
    sys.stdout.write(f"{os.environ['RDZV_ID']} node {rank} of {nodes}: {total}\n")
    sys.exit(total != int(os.environ["WORLD_SIZE"]))


def _connect(place: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + 120
    while True:
        try:
            return socket.create_connection(place, timeout=120)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
