"""POCache's experiments with many files (§5.1, §5.3, §5.4): reads by Zipf's law, one node slow, several systems in turn."""

import random
import statistics

from .report import percentile
from .stage import HEDGED, MIB, PARITAS, load

K = 4
ZIPF = 0.9
WHOLE = [PARITAS, "fs.paritas.read.policy=whole-file", f"fs.paritas.k={K}", "fs.paritas.min.file=1m"]


def plain(name):
    """A system's name as that of a mode and of a mount, which has letters, digits and dashes only."""
    return name.replace(" ", "-").replace("+", "-")


class World:
    """Files of `blocks[i]` blocks, in as many layouts as are needed. A path is /LAYOUT/NUMBER, the seed its number."""

    def __init__(self, stage, blocks, block_mib, seed=1):
        self.stage, self.blocks, self.block = stage, blocks, block_mib * MIB
        draw = random.Random(seed)
        self.places = [draw.sample(range(stage.nodes), stage.nodes) for _ in blocks]
        self.on = {"contiguous": [set(places[:count]) for places, count in zip(self.places, blocks)]}
        self.ranks = draw.sample(range(len(blocks)), len(blocks))
        self.weights = [(rank + 1) ** -ZIPF for rank in range(len(blocks))]

    def write(self, reader, layouts):
        """Writes all files with links that are not shaped."""
        stage = self.stage
        stage.unshaped()
        names = [stage.node(i) for i in range(stage.nodes)]
        for layout in layouts:
            copies = {"contiguous": 1, "replicated": 2, "healthy": 3}.get(layout)
            if layout == "striped":
                reader.ok("xor-policy", "/striped", K)
                self.on["striped"] = []
            elif layout not in self.on:
                self.on[layout] = self.on["contiguous"]
            for number, (places, count) in enumerate(zip(self.places, self.blocks)):
                path = f"/{layout}/{number}"
                replicas = [",".join(names[places[(block + copy) % len(places)]] for copy in range(copies))
                            for block in range(count)] if copies else []
                reader.ok("write", path, count * self.block, self.block, number, *replicas)
                if layout == "striped":
                    groups = reader.ok("units", path).split()
                    self.on[layout].append({names.index(unit) for group in groups for unit in group.split(",")[:K]
                                            if unit != "none"})
        stage.rates()

    def next_file(self, draw):
        return draw.choices(self.ranks, self.weights)[0]


class System:
    """Who reads, in which mode, which layout."""

    def __init__(self, name, reader, mode, layout):
        self.name, self.reader, self.mode, self.layout = name, reader, mode, layout

    def read(self, stage, number, quiet=True):
        if quiet:
            stage.quiet()
        ns, _, cached = map(int, self.reader.ok("whole", self.mode, f"/{self.layout}/{number}", number).split())
        return ns / 1e9, cached


def systems(stage, reader, wanted, hedger=None):
    """Those with these names. The mode has the same name without blanks."""
    layouts = {"hedged": "replicated", "OR": "healthy"}
    found = []
    for name in wanted:
        layout = "striped" if name.endswith("striped") else layouts.get(name, "contiguous")
        found.append(System(name, hedger if name == "hedged" else reader, plain(name), layout))
    return found


def mode(stage, name, mount):
    """The settings of the system with that name, whose parity or copies are in that mount."""
    kind = name.split()[0]
    return {
        "vanilla": [], "parallel": ["lab.system=parallel"], "hedged": HEDGED, "OR": ["lab.system=healthy"],
        "SR": ["lab.system=copies", *stage.files(mount)],
        "DC2": ["lab.system=copies", "lab.reports=true", *stage.files(mount)],
        "DC1": ["lab.system=slow-copies", *stage.files(mount)],
    }.get(kind, [*WHOLE, *stage.files(mount)])


def play(stage, world, played, seed, reads, rows, straggler, believe=()):
    """Reads of one seed: each file by every system, in an order that is drawn anew. `straggler(read)` is the slow node."""
    draw = random.Random(seed)
    slow = None
    for read in range(reads):
        if straggler(read) != slow:
            slow = straggler(read)
            stage.rates([slow])
            for system in believe:
                system.reader.ok("believe", system.mode, stage.node(slow))
        number = world.next_file(draw)
        order = list(played)
        draw.shuffle(order)
        for system in order:
            seconds, cached = system.read(stage, number)
            rows.append({"seed": seed, "read": read, "file": number, "blocks": world.blocks[number], "slow node": slow,
                         "on slow node": int(slow in world.on[system.layout][number]), "system": system.name,
                         "seconds": f"{seconds:.4f}", "blocks from cache": cached, "load": f"{load():.1f}"})
    for system in played:
        system.reader.ok("settle", system.mode)


def summarise(rows, names, of="system"):
    """Mean, median, p95 and p99 over all reads of each system, and the quarters of the seeds' means and p95s."""
    summary = []
    for name in names:
        mine = [row for row in rows if row[of] == name]
        times = [float(row["seconds"]) for row in mine]
        seeds = {}
        for row in mine:
            seeds.setdefault(row["seed"], []).append(float(row["seconds"]))
        means = sorted(statistics.mean(each) for each in seeds.values())
        tails = sorted(percentile(each, 95) for each in seeds.values())
        summary.append({
            "system": name, "seeds": len(seeds), "reads": len(times), "mean s": f"{statistics.mean(times):.3f}",
            "means of seeds": f"{means[0]:.3f} to {means[-1]:.3f}", "median s": f"{statistics.median(times):.3f}",
            "p95 s": f"{percentile(times, 95):.3f}", "p95 of seeds": f"{tails[0]:.3f} to {tails[-1]:.3f}",
            "p99 s": f"{percentile(times, 99):.3f}"})
    return summary


def off(summary, ours, theirs, what):
    """Percent that `ours` takes off the other's."""
    figure = {line["system"]: float(line[what]) for line in summary}
    return 100 * (1 - figure[ours] / figure[theirs])
