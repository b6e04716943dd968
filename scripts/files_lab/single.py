"""POCache's experiments 1 and 2 (§5.1): one client reads a file of k blocks, contiguous and striped, with and without a
straggler at a seventh of the rate."""

import random

from .report import BUSY, bars, spread, verdict, write
from .stage import HEDGED, MIB, PARITAS, SLOW_DIVISOR, committed, load

SEED = 7
# Reads before those that count: the JVM compiles, connections are made, the parity is written.
WARM_UPS = 3
CONTIGUOUS = ("vanilla", "hedged", "parallel", "paritas")
STRIPED = ("vanilla", "stored parity", "paritas")
# Off vanilla's latency, with one straggler, least and most over k = 4, 6, 8, 10; and what this project wants.
PAPER = {"contiguous": (81.7, 85.2), "striped": (73.0, 87.9)}
WANTED = {"contiguous": 88.0, "striped": 80.0}
PAPER_HEDGED = (40.4, 77.5)


def ceiling(layout, k, stragglers):
    """Percent off vanilla's latency that a reader may reach at most, if links are the only limit and it needs no byte of the
    straggler. Contiguous: vanilla takes k - 1 + 7 block times, the reader 1. Striped: 7 and 1."""
    if not stragglers:
        return 100 * (1 - 1 / k) if layout == "contiguous" else 0.0
    return 100 * (1 - 1 / (k + SLOW_DIVISOR - 1)) if layout == "contiguous" else 100 * (1 - 1 / SLOW_DIVISOR)


def mounts():
    return {"lake": {"blocks": 100}}


def nodes(k):
    """One more than data blocks: hedged reads have two replicas of k blocks on k + 1 nodes, as in the paper, and HDFS stores
    the parity of its erasure-coded files."""
    return k + 1


class Files:
    """A file for each layout, and one with two replicas for hedged reads; who reads them, and which node may be slow."""

    def __init__(self, stage, k, block):
        ours = [PARITAS, "fs.paritas.read.policy=whole-file", f"fs.paritas.k={k}", *stage.files("lake")]
        self.stage, self.k = stage, k
        self.reader = stage.reader({
            "vanilla": [], "parallel": ["lab.system=parallel"], "paritas": ours, "stored parity".replace(" ", "-"):
            ["lab.system=stored-parity"]})
        # Hadoop's switch for hedged reads is one for the whole JVM.
        self.hedger = stage.reader({"hedged": HEDGED})
        names = [stage.node(i) for i in range(k + 1)]
        self.reader.ok("write", "/contiguous", k * block, block, SEED, *names[:k])
        self.reader.ok("write", "/replicated", k * block, block, SEED, *(f"{names[i]},{names[i + 1]}" for i in range(k)))
        self.reader.ok("xor-policy", "/striped", k)
        self.reader.ok("write", "/striped/file", k * block, block, SEED)
        units = self.reader.ok("units", "/striped/file").split(",")
        # The data nodes of each layout, in order.
        self.nodes = {"contiguous": list(range(k)), "striped": [names.index(unit) for unit in units[:k]]}

    def read(self, layout, system):
        if system == "hedged":
            return self.stage.seconds(self.hedger, "hedged", "/replicated", SEED)[0]
        path = "/contiguous" if layout == "contiguous" else "/striped/file"
        return self.stage.seconds(self.reader, system.replace(" ", "-"), path, SEED)[0]


def measure(stage, k, block_mib, seeds, layouts, rows, keep):
    files = Files(stage, k, block_mib * MIB)
    systems = {"contiguous": CONTIGUOUS, "striped": STRIPED}
    for layout in layouts:
        for _ in range(WARM_UPS):
            for system in systems[layout]:
                files.read(layout, system)
    committed(stage, "lake", len(layouts))
    for seed in seeds:
        draw = random.Random(seed)
        for layout in layouts:
            slow = draw.choice(files.nodes[layout])
            for stragglers in (0, 1):
                stage.rates([slow] * stragglers)
                order = list(systems[layout])
                draw.shuffle(order)
                for system in order:
                    before = files.reader.counters("paritas")
                    seconds = files.read(layout, system)
                    after = files.reader.counters("paritas")
                    grown = {name: after[name] - before[name] for name in ("data_bytes", "parity_bytes", "delivered_bytes")}
                    rows.append({"layout": layout, "k": k, "stragglers": stragglers, "seed": seed, "system": system,
                                 "seconds": f"{seconds:.4f}", "load": f"{load():.1f}", **grown})
                    print(rows[-1], flush=True)
        stage.rates()
        keep()


def summarise(rows, mbit, block_mib):
    summary = []
    for layout, k, stragglers in sorted({(row["layout"], int(row["k"]), int(row["stragglers"])) for row in rows}):
        here = [row for row in rows
                if (row["layout"], int(row["k"]), int(row["stragglers"])) == (layout, k, stragglers)]
        times = {}
        for row in here:
            times.setdefault(row["system"], {})[row["seed"]] = float(row["seconds"])
        line = {"layout": layout, "k": k, "stragglers": stragglers, "seeds": len(times["paritas"])}
        middle = {}
        for system in CONTIGUOUS if layout == "contiguous" else STRIPED:
            middle[system], low, high = spread(list(times[system].values()))
            line |= {f"{system} s": f"{middle[system]:.3f}", f"{system} quarters": f"{low:.3f} to {high:.3f}"}
        for system in ("hedged", "parallel", "stored parity"):
            line.setdefault(f"{system} s", "")
            line.setdefault(f"{system} quarters", "")
        # Pairs: reads of one seed follow each other.
        pairs = {system: spread([ours / times[system][seed] for seed, ours in times["paritas"].items()])[0]
                 for system in middle}
        off = 100 * (1 - pairs["vanilla"])
        least = block_mib * MIB * 8 / (mbit * 1e6)
        line |= {"over parallel %": f"{100 * (pairs['parallel'] - 1):+.1f}" if "parallel" in pairs else "",
                 "off vanilla %": f"{off:.1f}", "ceiling %": f"{ceiling(layout, k, stragglers):.1f}",
                 "off hedged %": f"{100 * (1 - pairs['hedged']):.1f}" if "hedged" in pairs else "",
                 "over link's time": f"{middle['paritas'] / least:.2f}"}
        line |= claim(layout, k, stragglers, off, pairs, middle["paritas"] > BUSY * least)
        summary.append(dict(sorted(line.items(), key=lambda item: COLUMNS.index(item[0]))))
    return summary


COLUMNS = ["layout", "k", "stragglers", "seeds",
           *(f"{system} {what}" for system in ("vanilla", "hedged", "parallel", "stored parity", "paritas")
             for what in ("s", "quarters")),
           "over parallel %", "off vanilla %", "ceiling %", "off hedged %", "over link's time", "paper", "verdict", "wanted", "met"]


def claim(layout, k, stragglers, off, pairs, is_busy):
    if stragglers:
        least, most = PAPER[layout]
        told = verdict(off, PAPER[layout], 0.5 * ceiling(layout, k, 1))
        wanted, met = f"at least {WANTED[layout]:.0f} % off vanilla", off >= WANTED[layout]
        paper = f"{least} to {most} % off vanilla"
        if layout == "contiguous":
            paper += f", {PAPER_HEDGED[0]} to {PAPER_HEDGED[1]} % off hedged"
    elif layout == "contiguous":
        paper, wanted = "as parallel reads", "at most 3 % over parallel"
        met = pairs["parallel"] <= 1.03
        told = "reproduced" if met else "not reproduced"
    else:
        paper, wanted = "slightly above vanilla", "at most 5 % over vanilla"
        met = pairs["vanilla"] <= 1.05
        told = "not reproduced" if not met else "reproduced" if pairs["vanilla"] >= 0.99 else "not reproduced: below vanilla"
    if is_busy and not met:
        told = "no verdict: the links were not the limit"
    return {"paper": paper, "verdict": told, "wanted": wanted, "met": "yes" if met else "no"}


def plot(out, summary):
    for layout, systems, number in (("contiguous", CONTIGUOUS, 1), ("striped", STRIPED, 2)):
        lines = [line for line in summary if line["layout"] == layout]
        if not lines:
            continue
        groups, values, limit, paper = [], {}, {}, ({}, {})
        for line in lines:
            group = f"k={line['k']}" + ("\n1 slow" if line["stragglers"] else "")
            groups.append(group)
            for system in systems:
                low, high = map(float, line[f"{system} quarters"].split(" to "))
                values[group, system] = float(line[f"{system} s"]), low, high
            vanilla = float(line["vanilla s"])
            limit[group] = vanilla * (1 - float(line["ceiling %"]) / 100)
            if line["stragglers"]:
                for at, off in enumerate(PAPER[layout]):
                    paper[at][group] = vanilla * (1 - off / 100)
        groups.sort(key=lambda group: ("slow" in group, int(group.split("=")[1].split("\n")[0])))
        marks = [("least that links allow", limit), ("paper, least off vanilla", paper[0]),
                 ("paper, most off vanilla", paper[1])]
        bars(out / f"pocache-{layout}.png", f"POCache experiment {number}: read of k blocks, {layout}; median and quarters",
             groups, systems, values, "seconds", marks)


def save(out, rows, mbit, block_mib):
    write(out / "pocache-single-reads.csv", rows)
    summary = summarise(rows, mbit, block_mib)
    write(out / "pocache-single.csv", summary)
    return summary
