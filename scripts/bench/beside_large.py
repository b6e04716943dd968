"""Times of small GETs through another node than the owner, alone and beside SETs of long values by the same way.

python3 scripts/bench/beside_large.py [--writers 2] [--mib 64] [--seconds 15] [--turns]; PARITAS_BIN names the binary.
`--turns` counts the CPU time of each turn of the nodes' event loops too (turns.c, built with cc)."""

import argparse
import multiprocessing
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests"))
from conftest import Cluster, until  # noqa: E402
from test_large_values import owner_of  # noqa: E402


def request(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def ask(stream, command, reply):
    stream.sendall(command)
    got = b""
    while len(got) < len(reply) and not got.startswith(b"-"):
        part = stream.recv(1 << 16)
        if not part:
            raise ConnectionError
        got += part
    return got == reply


def write(port, key, mib, until_at, counts):
    command = request(b"SET", key, bytes(mib << 20))
    done = failed = 0
    stream = socket.create_connection(("127.0.0.1", port))
    while time.monotonic() < until_at:
        try:
            good = ask(stream, command, b"+OK\r\n")
        except OSError:
            good = False
            stream = socket.create_connection(("127.0.0.1", port))
        done, failed = done + good, failed + (not good)
    counts.put((done, failed))


def read(port, seconds):
    command, reply, times = request(b"GET", b"{of}:small"), b"$5\r\nvalue\r\n", []
    refused = 0
    with socket.create_connection(("127.0.0.1", port)) as stream:
        until_at = time.monotonic() + seconds
        while time.monotonic() < until_at:
            began = time.monotonic()
            refused += not ask(stream, command, reply)
            times.append(1e3 * (time.monotonic() - began))
            time.sleep(0.002)
    times.sort()
    at = lambda part: times[min(len(times) - 1, int(len(times) * part))]
    return f"{len(times)} GETs, {refused} refused, p50 {at(0.5):.2f} ms, p99 {at(0.99):.1f} ms, longest {times[-1]:.0f} ms"


class Turns:
    """CPU times of the turns of all event loops, by thread."""

    LAYOUT = struct.Struct("=64Q5Q")

    def __init__(self, directory):
        self.directory = pathlib.Path(directory) / "turns"
        self.directory.mkdir()
        shim = self.directory / "turns.so"
        source = pathlib.Path(__file__).parent / "turns.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
        os.environ.update(LD_PRELOAD=str(shim), TURNS_DIR=str(self.directory))

    def begin(self):
        del os.environ["LD_PRELOAD"]
        self.reset()

    def reset(self):
        for path in self.directory.glob("*-*"):
            with path.open("r+b") as file:
                file.write(bytes(self.LAYOUT.size))

    def longest_ms(self):
        return max(self.LAYOUT.unpack(path.read_bytes())[64] for path in self.directory.glob("*-*")) / 1e6

    def report(self):
        below, longest = [0] * 64, []
        for path in self.directory.glob("*-*"):
            counts = self.LAYOUT.unpack(path.read_bytes())
            below = [sum(pair) for pair in zip(below, counts)]
            longest.append(counts[64:])
        bounds = [f"{count} below {1 << n} µs" for n, count in enumerate(below) if count]
        print(f"{sum(below)} turns: {', '.join(bounds)}")
        for ns, recv_ns, send_ns, received, sent in sorted(longest, reverse=True)[:6]:
            print(
                f"longest turn of a thread: {ns / 1e6:.2f} ms; {recv_ns / 1e6:.2f} to receive {received} bytes, "
                f"{send_ns / 1e6:.2f} to send {sent}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--turns", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        binary = os.environ["PARITAS_BIN"]
        turns = Turns(directory) if asked.turns else None
        cluster = Cluster(pathlib.Path(directory), memory="1gb", binary=binary)
        try:
            until(cluster.is_whole, "a whole cluster")
            owner = owner_of(cluster, "{of}:small")
            port = cluster.port + (owner + 1) % 6
            cluster.client(owner).set("{of}:small", "value")
            if turns:
                turns.begin()
            print("alone:", read(port, asked.seconds / 3))
            counts, until_at = multiprocessing.Queue(), time.monotonic() + asked.seconds + 2
            keys = [b"{of}:%d" % n for n in range(asked.writers)]
            writers = [multiprocessing.Process(target=write, args=(port, key, asked.mib, until_at, counts)) for key in keys]
            for writer in writers:
                writer.start()
            time.sleep(1)
            result = read(port, asked.seconds)
            done, failed = map(sum, zip(*(counts.get() for _ in writers)))
            print(f"beside {asked.writers} writers:", result, f"({done} SETs, {failed} refused)")
            if turns:
                turns.report()
            for writer in writers:
                writer.join()
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
