"""CPU seconds for sending a gigabyte over loopback and reading it, by size of writes and reads. A rebuild cannot be
cheaper than this for each byte that it fetches."""

import os
import resource
import socket

TOTAL = 1 << 30


def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def once(size):
    """CPU seconds of sender and receiver together."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        with socket.create_connection(listener.getsockname()) as sender:
            block, left = memoryview(bytearray(size)), TOTAL
            while left > 0:
                left -= sender.send(block[: min(size, left)])
        os._exit(0)
    receiver, _ = listener.accept()
    buffer, before = bytearray(size), spent()
    with receiver:
        while receiver.recv_into(buffer):
            pass
    _, _, usage = os.wait4(child, 0)
    return (spent() - before + usage.ru_utime + usage.ru_stime) / (TOTAL / 1e9)


if __name__ == "__main__":
    for kib in (16, 64, 256, 1024):
        rounds = sorted(once(kib << 10) for _ in range(5))
        print(f"{kib} KiB: {rounds[2]:.2f} CPU s a GB ({rounds[0]:.2f}-{rounds[-1]:.2f})")
