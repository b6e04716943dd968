"""Writes of 1 MiB on links that are the limit: six hosts with servers, eight with a client each. Encoded by the client and by the
server, beside Valkey with SET and WAIT 2, two primaries on the six hosts and a primary on each."""

import concurrent.futures

import on_hosts
from files_lab import report

from . import figures
from .network import Links

SERVERS, CLIENTS, WINDOW, VALUE_BYTES, KEYS = 6, 8, 4, 1 << 20, 24
MBIT = 100


def rate(lab, job, seconds):
    """MB a second of all clients, and how busy their links were."""
    def one(client):
        return lab.drive({"op": "set", "bytes": VALUE_BYTES, "keys": KEYS, "window": WINDOW, "seed": client, "prefix": f"c{client}",
                          "seconds": seconds, **job}, host=SERVERS + client)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(one, range(CLIENTS)))
    return sum(each["done"] * VALUE_BYTES / each["seconds"] for each in found) / 1e6


def run(options):
    found = {}
    with Links(SERVERS + CLIENTS) as network, on_hosts.Stage(network) as stage:
        lab = figures.Lab(stage, options)
        for _ in range(options.rounds):
            for primaries in (2, 6):
                job = {"system": "valkey", "addresses": stage.valkey(SERVERS, primaries)}
                network.shape(MBIT, None)
                found.setdefault(f"Valkey, {primaries} primaries", []).append(rate(lab, job, 4 * options.seconds))
                stage.end()
                network.shape(None, None)
            addresses = stage.paritas(SERVERS, "4+2", client_coding="on")
            network.shape(MBIT, None)
            for name, encode in (("Paritas, the client", "client"), ("Paritas, SET", "server"), ("Paritas, auto", "auto")):
                job = {"system": "paritas", "encode_bytes_min": 65_537, "addresses": addresses, "encode": encode, "decode": "client"}
                found.setdefault(name, []).append(rate(lab, job, 4 * options.seconds))
            stage.end()
            network.shape(None, None)
    link = MBIT / 8
    rows = []
    for name, rates in found.items():
        median, least, most = report.spread(rates)[0], min(rates), max(rates)
        rows.append({"system": name, "MB/s": f"{median:.1f}", "least": f"{least:.1f}", "most": f"{most:.1f}", "of one link": f"{median / link:.2f}"})
    report.write(options.out / "online-ec-writes-on-links.csv", rows)
    told = []
    for other, bar in (("Valkey, 2 primaries", 3), ("Valkey, 6 primaries", 1.5)):
        ratios = sorted(a / b for a, b in zip(found["Paritas, the client"], found[other]))
        told.append({"claim": f"SET by the client at least {bar} times {other}", "paper": "", "ours": f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
                     "verdict": figures.told(ratios, bar, float("inf")), "reason": ""})
    best = [max(a, b) for a, b in zip(found["Paritas, the client"], found["Paritas, SET"])]
    ratios = sorted(a / b for a, b in zip(best, found["Paritas, auto"]))
    told.append({"claim": "auto takes at most 1.1 times the better way's time", "paper": "", "ours": f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
                 "verdict": figures.told(ratios, 0, 1.1), "reason": ""})
    report.write(options.out / "online-ec-writes-on-links-verdicts.csv", told)
    for line in [*rows, *told]:
        print(", ".join(line.values()))
