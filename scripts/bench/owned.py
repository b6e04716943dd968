"""GET of large values at the node that owns them, of one build or of several beside each other: CPU time of all nodes
for each MB. Six nodes, `4+2`, one connection, pipeline 1. Of class `rep:1` all bytes are at the owner; of `ec:4,2` three
quarters come from other nodes. A round reads each key once, and the next one comes when no node holds a body any more.
Builds take turns; medians, least and most in brackets. The last column is the first build's figure over that of each other
in the same round: the median of all rounds.

    python3 scripts/bench/owned.py target/release/paritas [older-build ...]
"""

import argparse
import statistics
import sys
import time

import elsewhere
import large
import systems

SIZES = (250_000, 1 << 20, 4 << 20)
CLASSES = ("rep:1", "ec:4,2")
# Of all values of one size and class.
BYTES = 64_000_000
# Longer than a node keeps a body after its last reader.
PAUSE_S = 0.3


def owned_keys(port, prefix, count):
    """Keys that the node at this port owns: its strict port does not redirect."""
    found, n = [], 0
    with systems.socket.create_connection(("127.0.0.1", port), timeout=systems.TIMEOUT_S) as stream:
        while len(found) < count:
            key = b"%s:%d" % (prefix, n)
            n += 1
            stream.sendall(elsewhere.request(b"GET", key))
            if stream.recv(4096) == b"$-1\r\n":
                found.append(key)
    return found


def once(system, keys, value):
    """CPU-ms a MB."""
    stream, length = elsewhere.Stream(system.port), len(b"$%d\r\n" % value) + value + 2
    cpu = system.cpu_us()
    for key in keys:
        stream.ask(elsewhere.request(b"GET", key), length)
    return (system.cpu_us() - cpu) / 1e3 / (len(keys) * value / 1e6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    rules = "; ".join(f"{name}:* {name}" for name in CLASSES)
    running = []
    print("| class | value | build | CPU-ms a MB | of it, the first build |")
    print("|---|---|---|---|---|")
    try:
        for build in arguments.builds:
            systems.PARITAS = build
            running.append(systems.Paritas("4+2", 6, "512mb", options=["--redundancy-rules", rules]))
            running[-1].__enter__()
        for name in CLASSES:
            for value in SIZES:
                rounds = [[] for _ in running]
                for system in running:
                    system.keys = owned_keys(system.port, name.encode(), BYTES // value)
                    stream = elsewhere.Stream(system.port)
                    for n, key in enumerate(system.keys):
                        stream.ask(elsewhere.request(b"SET", key, bytes([n % 251]) * value), 5)
                for _ in range(arguments.rounds):
                    for system, figures in zip(running, rounds):
                        time.sleep(PAUSE_S)
                        figures.append(once(system, system.keys, value))
                for system, build, figures in zip(running, arguments.builds, rounds):
                    ratio = statistics.median(mine / others for mine, others in zip(rounds[0], figures))
                    print(f"| {name} | {value:,} B | `{build}` | {large.show(figures)} | {ratio:.2f} |", flush=True)
                    stream = elsewhere.Stream(system.port)
                    for key in system.keys:
                        stream.ask(elsewhere.request(b"DEL", key), 4)
    finally:
        for system in running:
            system.stop()


if __name__ == "__main__":
    sys.exit(main())
