"""Time that a change of class takes when the network is the limit: each node in a network namespace whose link sends at
a given rate. The changes of ElasticMem by way of eor beside the naive ones by way of rep, there and back. As root:

PARITAS_BIN=target/release/paritas python3 scripts/bench/transitions.py [--mbit 200] [--rounds 30] [--mib 1]

Writes docs/lab/elasticmem-shaped.csv, -saved.csv, -verdicts.csv and .png."""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "storm"), str(ROOT / "tests"), str(ROOT / "scripts")]
from files_lab import report  # noqa: E402
from host_cluster import HostCluster  # noqa: E402

COMMAND = "PARITAS.REDUNDANCY"
SETTINGS = [(4, 1, 2), (4, 2, 3)]
# Longer than an owner keeps the body of a value after its last reader.
BODY_KEPT_S = 1
# What is compared, with its phase and the paper's least and most percent of the time saved, at any length.
COMPARED = {"forward": (1, (8, 35)), "back: never eor before": (0, (3, 26)), "back: eor before": (2, (3, 26))}


class Shape:
    scheme, quorum, nodes, members, log_nodes = "4+2", 2, 6, 6, 0


def change(client, key, class_):
    began = time.monotonic()
    assert client.execute_command(COMMAND, key, class_) == b"OK"
    return 1e3 * (time.monotonic() - began)


def measure(clients, setting, rounds, size):
    """Milliseconds of each change, by phase and way. Both values of a pair have one owner, and their changes take
    turns. A value goes from ec to rep or eor, back to ec, and there again: then the eor one has been eor before."""
    k, m, r = setting
    classes = {"rep": f"rep:{r}", "eor": f"eor:{r},{k}"}
    ec = f"ec:{k},{m}"
    values = [bytes([n + 1]) * size for n in range(rounds)]
    keys = [{way: f"{{{setting}:{n}}}{way}" for way in classes} for n in range(rounds)]
    for n in range(rounds):
        for key in keys[n].values():
            clients[n % len(clients)].set(key, values[n])
            change(clients[n % len(clients)], key, ec)
    times = {}
    for phase in range(3):
        time.sleep(BODY_KEPT_S)
        for n in range(rounds):
            for way in sorted(classes, reverse=n % 2):
                taken = change(clients[n % len(clients)], keys[n][way], ec if phase == 1 else classes[way])
                times.setdefault((phase, way), []).append(taken)
    for n in range(rounds):
        for key in keys[n].values():
            assert clients[n % len(clients)].get(key) == values[n]
            clients[n % len(clients)].delete(key)
    return times


def write(out, found, asked):
    """The tables and the plot. `found`: the times of each setting."""
    names = ["ec to {}", "{} to ec", "ec to {} again"]
    rows, saved, claims, bars = [], [], [], {}
    for setting, times in found.items():
        name = "({};{};{})".format(*setting)
        for (phase, way), taken in sorted(times.items()):
            figures = [f"{figure:.2f}" for figure in (*report.spread(taken), min(taken), max(taken))]
            heads = ["median ms", "quarter ms", "three quarters ms", "least ms", "most ms"]
            cells = dict(zip(heads, figures, strict=True))
            rows.append({"setting": name, "change": names[phase].format(way), **cells})
        for what, (phase, paper) in COMPARED.items():
            pairs = zip(times[phase, "eor"], times[phase, "rep"], strict=True)
            parts = [100 * (1 - ours / theirs) for ours, theirs in pairs]
            bars[name, what] = spread = report.spread(parts)
            median, low, high = (f"{figure:.1f}" for figure in spread)
            quarters = {"median %": median, "quarter %": low, "three quarters %": high}
            saved.append({"setting": name, "direction": what, **quarters})
            # As in `paritas lab run elasticmem-nodes`: two thirds of the pairs must save time.
            is_told = 3 * sum(part > 0 for part in parts) >= 2 * len(parts)
            told = report.verdict(spread[0], paper, 0) if is_told else "not reproduced"
            claims.append({"claim": f"{name} {what}: percent of the time saved", "paper": "{} to {}".format(*paper),
                           "ours": median, "verdict": told})
    for part, table in (("", rows), ("-saved", saved), ("-verdicts", claims)):
        report.write(out / f"elasticmem-shaped{part}.csv", table)
        lines = [list(table[0]), *(list(row.values()) for row in table)]
        print("\n".join(", ".join(line) for line in lines), end="\n\n")
    groups = list(dict.fromkeys(group for group, _ in bars))
    marks = [(f"paper: most {what}", dict.fromkeys(groups, most)) for what, most in (("forward", 35), ("back", 26))]
    title = f"{asked.mbit} Mbit/s a node, {asked.mib} MiB"
    unit = "percent of the time saved, medians and quarters"
    report.bars(out / "elasticmem-shaped.png", title, groups, list(COMPARED), bars, unit, marks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--mib", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "lab")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cluster = HostCluster(pathlib.Path(directory), Shape, "512mb")
        try:
            for node in range(Shape.nodes):
                rate = ["rate", f"{asked.mbit}mbit", "burst", "64kb", "latency", "1s"]
                tc = ["tc", "-n", cluster.hosts.name(node), "qdisc", "replace", "dev", "eth0", "root", "tbf"]
                subprocess.run([*tc, *rate], check=True)
            clients = [redis.Redis(host, port, socket_timeout=60) for host, port in cluster.addresses()]
            found = {setting: measure(clients, setting, asked.rounds, asked.mib << 20) for setting in SETTINGS}
        finally:
            cluster.stop()
    print(f"links of {asked.mbit} Mbit/s, {asked.mib} MiB, {asked.rounds} changes each, in turn\n")
    write(asked.out, found, asked)


if __name__ == "__main__":
    main()
