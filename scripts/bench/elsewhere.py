"""GET of large values through a node that does not own them, of one build or of several beside each other: CPU time of all
nodes for each MB, bytes between nodes over bytes of values, and times. Six nodes, `4+2`, keys of all slots that node 0
does not own, four connections to node 0, pipeline 1. Builds take turns; medians, least and most in brackets.

    python3 scripts/bench/elsewhere.py target/release/paritas [older-build ...]
"""

import argparse
import statistics
import sys
import threading
import time

import large
import systems

# By bytes of a value: keys, and reads of one connection in a round.
SIZES = {100_000: (200, 400), 500_000: (100, 200), 4 << 20: (32, 24)}
CONNECTIONS, SCHEME, NODES, MEMORY = 4, "4+2", 6, "512mb"


def request(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Stream:
    def __init__(self, port):
        self.socket = systems.socket.create_connection(("127.0.0.1", port), timeout=systems.TIMEOUT_S)
        self.buffer = bytearray(1 << 20)

    def ask(self, command, length):
        """Sends a command whose reply has this length. Returns whether it began as a value does."""
        self.socket.sendall(command)
        first, left = None, length
        while left:
            got = self.socket.recv_into(self.buffer, min(left, len(self.buffer)))
            if not got:
                raise SystemExit("elsewhere: the node has closed the connection")
            first = self.buffer[0] if first is None else first
            if first == ord("-"):
                raise SystemExit(f"elsewhere: {bytes(self.buffer[:got])}")
            left -= got


def keys_elsewhere(port, count):
    """Keys that the node at this port does not own: its strict port redirects."""
    found, n = [], 0
    with systems.socket.create_connection(("127.0.0.1", port), timeout=systems.TIMEOUT_S) as stream:
        while len(found) < count:
            key = b"large:%d" % n
            n += 1
            stream.sendall(request(b"GET", key))
            if stream.recv(4096).startswith(b"-MOVED"):
                found.append(key)
    return found


def read(port, keys, value, count, first, times):
    stream, length = Stream(port), len(b"$%d\r\n" % value) + value + 2
    for n in range(count):
        began = time.monotonic()
        stream.ask(request(b"GET", keys[(first + 7 * n) % len(keys)]), length)
        times.append(time.monotonic() - began)


def once(build, system, keys, value, count):
    systems.PARITAS = build
    cpu, sent, times = system.cpu_us(), large.sent_bytes(system), []
    began = time.monotonic()
    threads = [
        threading.Thread(target=read, args=(system.any_port, keys, value, count, at * len(keys) // CONNECTIONS, times))
        for at in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, amount = time.monotonic() - began, value * count * CONNECTIONS
    if len(times) != count * CONNECTIONS:
        raise SystemExit("elsewhere: a connection has failed")
    return {
        "CPU": (system.cpu_us() - cpu) / 1e3 / (amount / 1e6),
        "sent": (large.sent_bytes(system) - sent) / amount,
        "MB/s": amount / 1e6 / seconds,
        "ms": 1e3 * statistics.median(times),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print("| value | build | CPU-ms a MB | bytes between nodes, of the value | MB/s | median ms |")
    print("|---|---|---|---|---|---|")
    for value, (key_count, count) in SIZES.items():
        running = []
        try:
            for build in arguments.builds:
                systems.PARITAS = build
                system = systems.Paritas(SCHEME, NODES, MEMORY)
                running.append((build, system, []))
                system.__enter__()
                keys = keys_elsewhere(system.port, key_count)
                stream = Stream(system.any_port)
                for n, key in enumerate(keys):
                    stream.ask(request(b"SET", key, bytes([n % 251]) * value), 5)
                system.keys = keys
            for _ in range(arguments.rounds):
                for build, system, rounds in running:
                    rounds.append(once(build, system, system.keys, value, count))
            for build, _, rounds in running:
                cells = [large.show([row[name] for row in rounds]) for name in rounds[0]]
                print(f"| {value:,} B | `{build}` | {' | '.join(cells)} |", flush=True)
        finally:
            for _, system, _ in running:
                system.stop()


if __name__ == "__main__":
    sys.exit(main())
