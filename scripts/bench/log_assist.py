"""Node repair with and without the log nodes' help (LogECMem §5.3, Fig 15): a node of a `6+3/2` cluster is killed and
restarted. Measured: the rate of its rebuild with `log_assist` off, on and auto. The other nodes send at most at a
limited rate, each through a relay of its own, or without a limit.

    scripts/bench/log_assist.py [--rate 8mb] [--keys 300000] [--rounds 3]
    scripts/bench/log_assist.py --rate 0          # no relays: as fast as the machine can
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import systems

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from slow_link import SlowLink  # noqa: E402

SCHEME, MEMBERS, LOG_NODES = "6+3/2", 7, 2
VICTIM, VALUE = 0, 1000


class Cluster(systems.System):
    """Nodes without a supervisor. With a limit, all but the lost one send through relays."""

    def __init__(self, limited):
        super().__init__(f"paritas {SCHEME}")
        self.limited, self.links, self.nodes = limited, [], {}

    def start(self):
        count = MEMBERS + LOG_NODES
        self.port = systems.free_base([offset + i for i in range(count) for offset in (0, 1_000, 10_000)] + [20_000])
        self.coordinator = f"127.0.0.1:{self.port + 20_000}"
        store = os.path.join(self.directory, "store")
        coordinator = [systems.PARITAS, "coordinator", "--listen", self.coordinator, "--store", store, "--scheme", SCHEME, "--memory", "512mb"]
        subprocess.run([*coordinator, "--create"], check=True, stdout=subprocess.DEVNULL)
        self.run(coordinator)
        if self.limited:
            for node in range(1, count):
                peer = self.port + 10_000 + node
                self.links.append(SlowLink(("127.0.0.2", peer), ("127.0.0.1", peer)))
        for node in range(count):
            self.start_node(node, "auto")
        systems.until(lambda: all(systems.answers(self.port + node) for node in range(MEMBERS)), "all nodes answer")

    def start_node(self, node, log_assist):
        command = [systems.PARITAS, "node", "--id", str(node), "--port", str(self.port + node), "--memory", "512mb"]
        command += ["--coordinator", self.coordinator, "--log-assist", log_assist]
        command += ["--host", "127.0.0.2"] if self.limited and node != VICTIM else []
        if node >= MEMBERS:
            command += ["--log-dir", os.path.join(self.directory, f"parity-{node}"), "--log-size", "1gb"]
        self.run(command)
        self.nodes[node] = self.children[-1]

    def limit(self, rate):
        for link in self.links:
            link.limit_to(rate)

    def stop(self):
        for link in self.links:
            link.close()
        super().stop()


def status(cluster):
    command = [systems.PARITAS, "status", "--port", str(cluster.port + 1), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def is_whole(cluster):
    return all(place["state"] == "live" for each in status(cluster)["lists"] for place in each["positions"])


def node_status(cluster):
    """Bytes rebuilt so far."""
    return status(cluster)["rebuild"]["done_bytes"]


def counted(cluster, field):
    return int(systems.info(cluster.port + VICTIM, field) or 0)


def once(cluster, log_assist, rate):
    """Bytes rebuilt a second, and the share of chunks that used log nodes."""
    victim = cluster.nodes[VICTIM]
    victim.kill()
    victim.wait()
    cluster.children.remove(victim)
    cluster.limit(rate)
    began = time.monotonic()
    cluster.start_node(VICTIM, log_assist)

    def done():
        try:
            return node_status(cluster)
        except (subprocess.CalledProcessError, OSError):
            return 0

    seen = [(began, 0)]
    while not (is_whole(cluster) and seen[-1][1]):
        if time.monotonic() > began + 300:
            raise SystemExit("bench: not whole within 300 s")
        if (now := done()) != seen[-1][1]:
            seen.append((time.monotonic(), now))
        time.sleep(0.01)
    took = time.monotonic() - began
    cluster.limit(0)
    # Gauges are updated a moment later.
    time.sleep(1)
    held = done()
    helped = counted(cluster, "log_assisted_chunks") * int(systems.info(cluster.port + VICTIM, "chunk_bytes"))
    if rate:
        # Without the start, when a lease is waited for, and the end, when only the last list is left.
        middle = [(at, bytes_) for at, bytes_ in seen if 0.3 * held <= bytes_ <= 0.95 * held]
        if len(middle) < 2:
            raise SystemExit("bench: the rebuild ended before two measurements; raise --keys, or lower --rate")
        (began, first), (ended, last) = middle[0], middle[-1]
        return (last - first) / (ended - began), helped / held
    return held / took, helped / held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="8mb", help="most that each node sends a second, in mb; 0: no limit")
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rate = float(arguments.rate.removesuffix("mb")) * (1 << 20)
    with Cluster(rate > 0) as cluster:
        fill = [systems.LOAD, "fill", "--port", str(cluster.port), "--from", "0", "--to", str(arguments.keys), "--value", str(VALUE)]
        subprocess.run(fill, check=True)
        # Data in the log nodes' memory is written to their disks.
        time.sleep(3)
        found = {}
        for _ in range(arguments.rounds):
            for log_assist in ("off", "on", "auto"):
                found.setdefault(log_assist, []).append(once(cluster, log_assist, rate))
                print(f"{log_assist}: {found[log_assist][-1][0] / (1 << 20):.2f} MiB/s, {found[log_assist][-1][1]:.3f} helped", flush=True)
    off = statistics.median(rate for rate, _ in found["off"])
    for log_assist, rows in found.items():
        median, share = (statistics.median(column) for column in zip(*rows))
        print(f"{log_assist}: {median / (1 << 20):.2f} MiB/s ({100 * (median / off - 1):+.1f} %), {100 * share:.0f} % of chunks helped")


if __name__ == "__main__":
    main()
