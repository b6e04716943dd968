"""Large values whose parts the client writes (docs/client.md): CPU time of all servers for each MB and times, beside SET
of the same cluster and Valkey's SET with two replicas and WAIT 2. Six nodes, `4+2`, `client_coding = "on"` (which is not the
default), one connection, one write at a time of one key. Systems take turns; medians, least and most in brackets. The client is
the example of crates/client-io.

    cargo build --release -p paritas-client-io --example write
    python3 scripts/bench/client_writes.py
"""

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import time

import large
import systems

WRITE = os.environ.get("WRITE_BIN", str(systems.TARGET / "release/examples/write"))
# By bytes of a value: writes of a round.
SIZES = {128 << 10: 1_000, 1 << 20: 300, 16 << 20: 24}


def by_engine(system, encode, value, writes):
    command = [WRITE, f"127.0.0.1:{system.any_port}", encode, str(value), str(writes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"client_writes: {done.stderr.strip()[:300]}")
    found = re.search(r"median ([\d.]+) ms, longest ([\d.]+) ms, ([\d.]+) MB/s; (\d+) encoded here", done.stdout)
    median, longest, rate, here = found.groups()
    if int(here) != (writes if encode == "client" else 0):
        raise SystemExit(f"client_writes: {here} of {writes} values were encoded by the client")
    return float(median), float(longest), float(rate)


def by_wait(system, _, value, writes):
    """SET and WAIT 2 in one write, then their replies."""
    body = os.urandom(value)
    set_ = b"*3\r\n$3\r\nSET\r\n$13\r\nexample:write\r\n$%d\r\n%s\r\n" % (value, body)
    request, times = set_ + b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n", []
    with socket.create_connection(("127.0.0.1", system.port), timeout=systems.TIMEOUT_S) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        for _ in range(writes):
            since = time.monotonic()
            stream.sendall(request)
            reply = b""
            while not reply.endswith(b":2\r\n"):
                more = stream.recv(4096)
                if not more:
                    raise SystemExit("client_writes: Valkey has closed the connection")
                reply += more
            times.append((time.monotonic() - since) * 1e3)
        took = time.monotonic() - began
    return statistics.median(times), max(times), value * writes / took / 1e6


def once(run, system, encode, value, writes):
    cpu = system.cpu_us()
    median, longest, rate = run(system, encode, value, writes)
    used = (system.cpu_us() - cpu) / 1e3 / (value * writes / 1e6)
    return {"CPU": used, "ms": median, "MB/s": rate, "longest": longest}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    paritas = systems.Paritas("4+2", 6, "512mb", options=("--client-coding", "on"))
    valkey = systems.valkey(2)
    ways = [
        (by_wait, valkey, "", "SET and WAIT 2 of Valkey, two replicas"),
        (by_engine, paritas, "server", "SET, encoded by the owner"),
        (by_engine, paritas, "client", "the client"),
    ]
    print("| value | written by | server CPU-ms a MB | median ms | MB/s | longest ms |")
    print("|---|---|---|---|---|---|")
    with paritas, valkey:
        for value, writes in SIZES.items():
            found = [[] for _ in ways]
            for _ in range(rounds):
                for rows, (run, system, encode, _) in zip(found, ways):
                    rows.append(once(run, system, encode, value, writes))
            for rows, (*_, name) in zip(found, ways):
                cells = [large.show([row[column] for row in rows]) for column in rows[0]]
                print(f"| {value:,} B | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
