"""Large values over links that are the limit: each host's link has one rate, for what it sends and for what it gets. Six
hosts with servers, eight with a client each; values of 1 MiB at uniform keys, four reads under way in each client.
Paritas `4+2`, read by the client and by GET; Valkey, two primaries with two replicas each on six hosts, and a primary
on each host with two replicas on others. Then one hot value of 16 MiB. All reads are compared. Needs root.

    cargo build --release -p paritas -p paritas-client-io --bins --examples
    python3 scripts/bench/client_links.py [--mbit 100] [--seconds 20]
"""

import argparse
import os
import re
import subprocess
import sys

import on_hosts
import systems

sys.path.insert(0, str(systems.ROOT / "tests"))

from bridge import Bridge  # noqa: E402

SERVERS, CLIENTS, WINDOW = 6, 8, 4
UNIFORM = os.environ.get("UNIFORM_BIN", str(systems.TARGET / "release/examples/uniform"))
UNIFORM_BYTES, UNIFORM_KEYS, HOT_BYTES = 1 << 20, 96, 16 << 20


class Stage(on_hosts.Stage):
    """All systems on hosts whose links are shaped."""

    def __init__(self, bridge, mbit):
        super().__init__(bridge)
        self.mbit = mbit

    def rates(self, is_shaped):
        for host in range(SERVERS + CLIENTS):
            self.network.rate(host, self.mbit * 1e6 if is_shaped else 20e9)

    def load(self, clusters, mode, value, keys, seconds):
        """Bytes a second of all clients, in MB."""
        children = []
        for client in range(CLIENTS if mode != "fill" else 1):
            command = [UNIFORM, clusters, mode, str(value), str(keys), str(seconds), str(WINDOW), str(client)]
            command = [*self.network.command(SERVERS + client), *command]
            children.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        total = 0.0
        for child in children:
            out, wrong = child.communicate(timeout=seconds + 120)
            if child.returncode != 0:
                raise SystemExit(f"client_links: {wrong.strip()[:300]}")
            rate = re.search(r"([\d.]+) MB/s", out)
            total += float(rate.group(1)) if rate else 0.0
        return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, default=100)
    parser.add_argument("--seconds", type=int, default=20)
    arguments = parser.parse_args()
    link = arguments.mbit / 8
    print(f"{SERVERS} servers, {CLIENTS} clients, each link {arguments.mbit:.0f} Mbit/s = {link:.1f} MB/s both ways")
    print("| system | read by | uniform keys, MB/s | of one link | one hot value, MB/s | of one link |")
    print("|---|---|---|---|---|---|")
    systems_of = {
        "Paritas `4+2`": (lambda stage: ",".join(stage.paritas(SERVERS, "4+2")), ["client", "auto", "server"]),
        "Valkey, 2 primaries": (lambda stage: ";".join(stage.valkey(SERVERS, 2)), ["server"]),
        "Valkey, 6 primaries": (lambda stage: ";".join(stage.valkey(SERVERS, 6)), ["server"]),
    }
    with Bridge(SERVERS + CLIENTS) as bridge, Stage(bridge, arguments.mbit) as stage:
        for name, (start, modes) in systems_of.items():
            stage.rates(False)
            clusters = start(stage)
            stage.load(clusters, "fill", UNIFORM_BYTES, UNIFORM_KEYS, 0)
            stage.rates(True)
            uniform = {mode: stage.load(clusters, mode, UNIFORM_BYTES, UNIFORM_KEYS, arguments.seconds) for mode in modes}
            stage.rates(False)
            stage.load(clusters, "fill", HOT_BYTES, 1, 0)
            stage.rates(True)
            hot = {mode: stage.load(clusters, mode, HOT_BYTES, 1, arguments.seconds) for mode in modes}
            for mode in modes:
                rows = [f"{value:.1f} | {value / link:.2f}" for value in (uniform[mode], hot[mode])]
                print(f"| {name} | {'GET' if mode == 'server' else mode} | {' | '.join(rows)} |", flush=True)
            stage.end()


if __name__ == "__main__":
    sys.exit(main())
