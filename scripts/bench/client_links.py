"""Large values over links that are the limit: each host's link has one rate, for what it sends and for what it gets. Six
hosts with servers, eight with a client each; values of 1 MiB at uniform keys, four reads under way in each client.
Paritas `4+2`, read by the client and by GET; Valkey, two primaries with two replicas each on six hosts, and a primary
on each host with two replicas on others. Then one hot value of 16 MiB. All reads are compared. Needs root.

    cargo build --release -p paritas -p paritas-client-io --bins --examples
    python3 scripts/bench/client_links.py [--mbit 100] [--seconds 20]
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import systems

sys.path.insert(0, str(systems.ROOT / "tests"))

from bridge import Bridge  # noqa: E402

SERVERS, CLIENTS, WINDOW = 6, 8, 4
UNIFORM = os.environ.get("UNIFORM_BIN", str(systems.TARGET / "release/examples/uniform"))
UNIFORM_BYTES, UNIFORM_KEYS, HOT_BYTES = 1 << 20, 96, 16 << 20
PORT = 6379


class Stage:
    def __init__(self, mbit):
        self.bridge, self.mbit = Bridge(SERVERS + CLIENTS), mbit
        self.children, self.directory = [], tempfile.TemporaryDirectory(prefix="bench-")

    def __enter__(self):
        try:
            self.bridge.make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def start(self, host, *command):
        with open(pathlib.Path(self.directory.name, f"log-{host}"), "ab") as log:
            child = subprocess.Popen([*self.bridge.command(host), *command], stdout=log, stderr=log, cwd=self.directory.name)
        self.children.append(child)

    def end(self):
        for child in self.children:
            child.kill()
        for child in self.children:
            child.wait()
        self.children.clear()

    def close(self):
        self.end()
        self.bridge.remove()
        self.directory.cleanup()

    def address(self, host, port=PORT):
        return f"{self.bridge.address(host)}:{port}"

    def rates(self, is_shaped):
        for host in range(SERVERS + CLIENTS):
            self.bridge.rate(host, self.mbit * 1e6 if is_shaped else 20e9)

    def answers(self, host, port):
        command = [*self.bridge.command(host), "redis-cli", "-h", self.bridge.address(host), "-p", str(port)]
        return lambda *words: subprocess.run([*command, *words], capture_output=True, text=True, check=False).stdout

    def paritas(self):
        path = pathlib.Path(self.directory.name)
        path.joinpath("secret").write_text("a secret of this bench, thirty-two bytes or more\n")
        path.joinpath("secret").chmod(0o600)
        coordinator, common = self.address(0, 6300), f'secret_file = "{path}/secret"\nopen = true\n'
        file = path / "coordinator.toml"
        file.write_text(f'{common}listen = "{coordinator}"\nstore = "{path}/store"\nscheme = "4+2"\nnodes = {SERVERS}\n'
                        'memory = "512mb"\n')
        subprocess.run([systems.PARITAS, "coordinator", "--config", str(file), "--create"], check=True, capture_output=True)
        self.start(0, systems.PARITAS, "coordinator", "--config", str(file))
        for host in range(SERVERS):
            file = path / f"node-{host}.toml"
            file.write_text(f'{common}id = {host}\nbind = "{self.bridge.address(host)}"\nport = {PORT}\nmemory = "512mb"\n'
                            f'coordinator = ["{coordinator}"]\n')
            self.start(host, systems.PARITAS, "node", "--config", str(file))
        ask = self.answers(0, PORT)
        systems.until(lambda: ask("SET", "ready", "1").startswith("OK"), "a cluster that serves")
        return ",".join(self.address(host) for host in range(SERVERS))

    def valkey(self, primaries):
        """Primaries on the first hosts, and two replicas of each on the hosts behind it."""
        step = 3 if primaries == 2 else 1
        for primary in range(primaries):
            for copy in range(3):
                host, port = (primary * step + copy) % SERVERS, PORT + primary
                words = ["--port", str(port), "--bind", self.bridge.address(host), "--save", "", "--appendonly", "no"]
                words += ["--protected-mode", "no", "--repl-diskless-sync-delay", "0"]
                words += ["--replicaof", self.bridge.address(primary * step), str(port)] if copy else []
                self.start(host, systems.valkey_binary(), *words)
        for primary in range(primaries):
            ask = self.answers(primary * step, PORT + primary)
            systems.until(lambda ask=ask: "connected_slaves:2" in ask("INFO", "replication"), "two replicas")
        return ";".join(self.address(primary * step, PORT + primary) for primary in range(primaries))

    def load(self, clusters, mode, value, keys, seconds):
        """Bytes a second of all clients, in MB."""
        children = []
        for client in range(CLIENTS if mode != "fill" else 1):
            command = [UNIFORM, clusters, mode, str(value), str(keys), str(seconds), str(WINDOW), str(client)]
            command = [*self.bridge.command(SERVERS + client), *command]
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
        "Paritas `4+2`": (lambda stage: stage.paritas(), ["client", "auto", "server"]),
        "Valkey, 2 primaries": (lambda stage: stage.valkey(2), ["server"]),
        "Valkey, 6 primaries": (lambda stage: stage.valkey(6), ["server"]),
    }
    with Stage(arguments.mbit) as stage:
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
