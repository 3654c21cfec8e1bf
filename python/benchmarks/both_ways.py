"""Sends bytes to every other process and receives as many from each, all at once, over plain sockets.

    python both_ways.py RANK WORLD ADDRESSES PORT BYTES ROUNDS    one process of each rank; ADDRESSES with commas

What TCP itself takes on a link for the bytes of an all-reduce. Prints the median time of a round in milliseconds.
"""

from __future__ import annotations

import socket
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

PIECE = bytes(1 << 18)


def connect(rank: int, addresses: list[str], port: int) -> list[socket.socket]:
    """A connection to every other process; the one with the larger rank dials."""
    listener = socket.create_server((addresses[rank], port), backlog=len(addresses))
    links = []
    for address in addresses[:rank]:
        until = time.monotonic() + 30
        while True:
            try:
                links.append(socket.create_connection((address, port)))
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
    links += [listener.accept()[0] for _ in addresses[rank + 1 :]]
    listener.close()
    return links


def send(link: socket.socket, count: int) -> None:
    """Sends so many bytes."""
    while count > 0:
        count -= link.send(memoryview(PIECE)[: min(count, len(PIECE))])


def receive(link: socket.socket, count: int) -> None:
    """Receives them; EOFError if the other process is gone."""
    room = bytearray(len(PIECE))
    while count > 0:
        came = link.recv_into(room, min(count, len(room)))
        if came == 0:
            raise EOFError
        count -= came


def main() -> None:
    """Reads the command line, and prints what was measured."""
    rank, world, port, count, rounds = (int(sys.argv[place]) for place in (1, 2, 4, 5, 6))
    links = connect(rank, sys.argv[3].split(",")[:world], port)
    times = []
    with ThreadPoolExecutor(2 * len(links)) as threads:
        for _ in range(rounds):
            began = time.monotonic()
            acts = [threads.submit(act, link, count) for link in links for act in (send, receive)]
            for act in acts:
                act.result()
            times.append((time.monotonic() - began) * 1e3)
    print(statistics.median(times))


if __name__ == "__main__":
    main()
