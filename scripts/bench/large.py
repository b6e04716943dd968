"""Large values: SET and GET of 1 MiB and 16 MiB that survive two losses, beside Valkey with two replicas and WAIT 2.
For each cell: bytes a second, CPU time of all server processes for each MB, bytes sent between the nodes over bytes of
values, and RSS over bytes of values. Systems take turns; medians, and least to most in brackets. Run after `make bench`
or with PARITAS_BIN and LOAD_BIN:

    python3 scripts/bench/large.py
"""

import argparse
import json
import re
import statistics
import subprocess
import sys

import systems

# By bytes of a value: keys and operations of one run.
SIZES = {1 << 20: (512, 1024), 16 << 20: (64, 96)}
CONNECTIONS = 4
SCHEME, NODES, MEMORY = "4+2", 6, "512mb"


def peer_ports(system):
    """The ports on which servers of the system take connections of each other."""
    if isinstance(system, systems.Redis):
        return [system.port]
    command = [systems.PARITAS, "status", "--port", str(system.any_port), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(node["peer_address"].rsplit(":", 1)[1]) for node in json.loads(done.stdout)["nodes"]]


def sent_bytes(system):
    """Bytes between servers, both ways. For Valkey, connections of clients to the primary are left out."""
    total = 0
    for port in peer_ports(system):
        command = ["ss", "-t", "-i", "-n", "-H", "state", "established", f"( sport = :{port} )"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = done.stdout.splitlines()
        # A line of addresses, then a line of figures.
        for addresses, figures in zip(lines[::2], lines[1::2]):
            if isinstance(system, systems.Redis) and addresses.split()[3] not in replica_ends(system):
                continue
            total += sum(int(count) for count in re.findall(r"bytes_(?:sent|received):(\d+)", figures))
    return total


def replica_ends(system):
    """Addresses from which the replicas are connected to the primary."""
    command = ["redis-cli", "-p", str(system.port), "client", "list", "type", "replica"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(re.findall(r" addr=(\S+)", done.stdout))


def run(system, operation, value, keys, operations):
    command = [systems.LOAD, "run", "--port", str(system.port), "--op", operation, "--connections", str(CONNECTIONS)]
    command += ["--value", str(value), "--keys", str(keys), "--operations", str(operations)]
    command += ["--cluster"] if system.cluster else []
    command += ["--wait", "each"] if operation == "set" and not system.cluster else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)}:\n{done.stderr}")
    fields = dict(field.split("=") for field in done.stdout.split())
    return float(fields["per_second"])


def once(system, operation, value, keys, operations):
    cpu, sent = system.cpu_us(), sent_bytes(system)
    per_second = run(system, operation, value, keys, operations)
    amount = value * operations
    return {
        "MB/s": per_second * value / 1e6,
        "CPU-ms/MB": (system.cpu_us() - cpu) / 1e3 / (amount / 1e6),
        "sent": (sent_bytes(system) - sent) / amount,
    }


def show(figures):
    least, most = min(figures), max(figures)
    return f"{statistics.median(figures):.2f} ({least:.2f}-{most:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("| value | operation | system | MB/s | CPU-ms a MB | bytes between nodes, of the value | RSS, of the values |")
    print("|---|---|---|---|---|---|---|")
    for value, (keys, operations) in SIZES.items():
        contenders = [systems.Paritas(SCHEME, NODES, MEMORY), systems.valkey(2, for_memory=True)]
        with contenders[0], contenders[1]:
            empty = [system.settled_resident() for system in contenders]
            for system in contenders:
                system.fill(0, keys, value)
            held = [(system.settled_resident() - e) / (keys * value) for system, e in zip(contenders, empty)]
            for operation in ("set", "get"):
                found = [[] for _ in contenders]
                for _ in range(rounds):
                    for rows, system in zip(found, contenders):
                        rows.append(once(system, operation, value, keys, operations))
                for rows, system, rss in zip(found, contenders, held):
                    cells = [show([row[name] for row in rows]) for name in rows[0]]
                    wait = ", WAIT 2" * (operation == "set" and not system.cluster)
                    name = system.name + wait
                    print(f"| {value >> 20} MiB | {operation.upper()} | {name} | {' | '.join(cells)} | {rss:.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
