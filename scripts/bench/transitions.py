"""Time that a change of class takes when the network is the limit: each node in a network namespace whose link sends at a
given rate. The forward change of ElasticMem, eor to ec, beside the naive one, rep to ec.

PARITAS_BIN=target/release/paritas python3 scripts/bench/transitions.py [--mbit 200] [--rounds 30]     (as root)"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "storm"), str(ROOT / "tests")]
from host_cluster import HostCluster  # noqa: E402

COMMAND = "PARITAS.REDUNDANCY"
SETTINGS = {"4,1,2": (4, 1, 2), "4,2,3": (4, 2, 3)}


class Shape:
    scheme, quorum, nodes, members, log_nodes = "4+2", 2, 6, 6, 0


def change(client, key, class_):
    began = time.monotonic()
    assert client.execute_command(COMMAND, key, class_) == b"OK"
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--mib", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cluster = HostCluster(pathlib.Path(directory), Shape, "512mb")
        try:
            for node in range(Shape.nodes):
                rate = ["rate", f"{asked.mbit}mbit", "burst", "64kb", "latency", "1s"]
                subprocess.run(
                    ["tc", "-n", cluster.hosts.name(node), "qdisc", "replace", "dev", "eth0", "root", "tbf", *rate], check=True
                )
            clients = [redis.Redis(host, port, socket_timeout=60) for host, port in cluster.addresses()]
            print(f"links of {asked.mbit} Mbit/s, {asked.mib} MiB, {asked.rounds} changes each, in turn")
            print("(k,m,r)  rep to ec, ms          eor to ec, ms          less")
            for name, (k, m, r) in SETTINGS.items():
                rep, eor, ec = f"rep:{r}", f"eor:{r},{k}", f"ec:{k},{m}"
                times = {rep: [], eor: []}
                for n in range(asked.rounds):
                    for before in (rep, eor):
                        # A new key each time, so that another node owns it and no class is there from before.
                        key = f"{name}:{n}:{before}"
                        client = clients[n % len(clients)]
                        client.set(key, bytes([n]) * (asked.mib << 20))
                        change(client, key, before)
                        times[before].append(1e3 * change(client, key, ec))
                        assert client.get(key) == bytes([n]) * (asked.mib << 20)
                        client.delete(key)
                cells = [f"{statistics.median(t):6.1f} ({min(t):.1f}-{max(t):.1f})" for t in times.values()]
                less = 1 - statistics.median(times[eor]) / statistics.median(times[rep])
                print(f"{name}    {cells[0]:22} {cells[1]:22} {less:.1%}")
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
