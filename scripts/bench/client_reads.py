"""Large values that the client reads from their parts (docs/client.md): CPU time of all servers for each MB and times,
beside GET of the same cluster, GET of older builds, and Valkey's GET without replicas. Six nodes, `4+2`, one value, one
connection, one read at a time. Systems take turns; medians, least and most in brackets. Then the longest read while a
node with parts of the value stands still for 0.6 s. The client is the example of crates/client-io.

    cargo build --release -p paritas-client-io --example read
    python3 scripts/bench/client_reads.py target/release/paritas [older-build ...]
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time

import large
import systems

READ = os.environ.get("READ_BIN", str(systems.TARGET / "release/examples/read"))
# By bytes of a value: reads of a round.
SIZES = {128 << 10: 4_000, 1 << 20: 1_000, 16 << 20: 60}
STOPPED_S, STOPPED_READS, STOPPED_BYTES = 0.6, 4_000, 1 << 20


def read(system, decode, value, reads):
    command = [READ, f"127.0.0.1:{system.any_port}", decode, str(value), str(reads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"client_reads: {done.stderr.strip()[:300]}")
    median, longest, rate, here = re.search(
        r"median ([\d.]+) ms, longest ([\d.]+) ms, ([\d.]+) MB/s; (\d+) decoded here", done.stdout
    ).groups()
    if decode == "client" and int(here) != reads:
        raise SystemExit(f"client_reads: {here} of {reads} values were put together by the client")
    return float(median), float(longest), float(rate)


def once(system, decode, value, reads):
    cpu = system.cpu_us()
    median, longest, rate = read(system, decode, value, reads)
    used = (system.cpu_us() - cpu) / 1e3 / (value * reads / 1e6)
    return {"CPU": used, "ms": median, "MB/s": rate, "longest": longest}


def compare(builds, rounds):
    print("| value | read by | server CPU-ms a MB | median ms | MB/s | longest ms |")
    print("|---|---|---|---|---|---|")
    ways = [(systems.valkey(), "server", "GET of Valkey")]
    for at, build in enumerate(builds):
        systems.PARITAS = build
        system = systems.Paritas("4+2", 6, "512mb")
        system.binary = build
        ways += [(system, "client", "the client")] if at == 0 else []
        ways += [(system, "server", f"GET, `{build}`")]
    started = []
    try:
        for system in dict.fromkeys(system for system, _, _ in ways):
            systems.PARITAS = getattr(system, "binary", systems.PARITAS)
            started.append(system)
            system.__enter__()
        for value, reads in SIZES.items():
            found = [[] for _ in ways]
            for _ in range(rounds):
                for rows, (system, decode, _) in zip(found, ways):
                    rows.append(once(system, decode, value, reads))
            for rows, (_, _, name) in zip(found, ways):
                cells = [large.show([row[column] for row in rows]) for column in rows[0]]
                print(f"| {value:,} B | {name} | {' | '.join(cells)} |", flush=True)
    finally:
        for system in started:
            system.stop()


def nodes_of(build, system):
    command = [build, "status", "--port", str(system.any_port), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["nodes"]


def is_owner(port):
    with systems.socket.create_connection(("127.0.0.1", port), timeout=systems.TIMEOUT_S) as stream:
        stream.sendall(b"EXISTS example:read\r\n")
        return not stream.recv(4096).startswith(b"-MOVED")


def stopped(build):
    """The longest read, each other node standing still in turn."""
    systems.PARITAS = build
    longest = {"client": [], "server": []}
    with systems.Paritas("4+2", 6, "512mb") as system:
        read(system, "client", STOPPED_BYTES, 100)
        for at, node in enumerate(nodes_of(build, system)):
            if at == 0 or is_owner(system.port + at):
                continue
            for decode, rows in longest.items():
                reads = STOPPED_READS if decode == "client" else STOPPED_READS // 4
                command = [READ, f"127.0.0.1:{system.any_port}", decode, str(STOPPED_BYTES), str(reads)]
                child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                time.sleep(0.3)
                os.kill(node["pid"], signal.SIGSTOP)
                time.sleep(STOPPED_S)
                os.kill(node["pid"], signal.SIGCONT)
                out, _ = child.communicate(timeout=systems.TIMEOUT_S)
                rows.append(float(re.search(r"longest ([\d.]+) ms", out).group(1)))
    for decode, rows in longest.items():
        print(f"longest read of {STOPPED_BYTES:,} B by the {decode}, another node stopped {STOPPED_S} s: {large.show(rows)} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    compare(arguments.builds, arguments.rounds)
    stopped(arguments.builds[0])


if __name__ == "__main__":
    sys.exit(main())
