"""The experiments with many files: which systems, which cluster, and what the paper says of them. Experiments 3, 4, 5, 12, 14
and 16 (§5), a point of each."""

import random
import threading

from . import workload
from .heartbeats import Heartbeats
from .report import bars, percentile, sure_least, verdict, write
from .stage import SLOW_DIVISOR, until
from .workload import World, off, plain, play, summarise, systems

MBIT = 200
BLOCK_MIB = 4
NODES = 12
FILES = 100
# Reads that only fill the caches, while a node is slow, use links that are so much faster.
HURRY = 4
# Reads that are not timed and go before, so that popular files have copies in SR's cache.
WARM_UPS = 200
PASSES = 3
# Percent that are within what seeds differ.
NOISE = 3
# Systems whose stewards are told the nodes' rates.
INFORMED = ("paritas", "CSAC", "LRU", "ARC", "LFU", "DC2")
# Percent by which the least and the most of systems that are alike may differ.
ALIKE = 10
# The paper says only that it is the lowest.
LOWEST = (NOISE, 100)
# In what a setting is easier than the paper's: there the system that is compared with suffers more.
SHARED = "a link of a seventh of the rate that several clients share costs Vanilla more than the paper's straggler"
MADE = "a straggler of a seventh of the rate costs Vanilla more than those that the paper's cloud has"


class Experiment:
    """One point of a figure on real HDFS."""

    def __init__(self, name, title, wanted, claims, nodes=NODES, blocks=None, size=100, moves_every=None, clients=1, filled=False,
                 easier=None, alike=()):
        self.name, self.title, self.wanted, self.claims = name, title, wanted, claims
        # The name of its tables. A simulation has taken that of `strategies`.
        self.tables = f"pocache-{name}-hdfs" if name.startswith("strategies") else f"pocache-{name}"
        # Blocks of the cache.
        self.nodes, self.size = nodes, size
        # Reads after which another node is slow.
        self.moves_every = moves_every
        self.clients = clients
        self.easier = easier
        # Systems of which the paper says that they take the same time.
        self.alike = alike
        # Before the reads of a seed the caches are filled while its node is slow, which may be another one for each seed.
        self.filled = filled
        self.blocks = blocks or [workload.K] * FILES

    def straggler(self, seed):
        """The slow node of each read."""
        draw = random.Random(1000 + seed)
        nodes = [draw.randrange(self.nodes) for _ in range(1000)]
        return lambda read: nodes[read // self.moves_every if self.moves_every else 0]

    def mounts(self):
        settings = {"blocks": self.size, "block": f"{BLOCK_MIB}mb"}
        found = {}
        for name in self.wanted:
            mount = plain(name)
            kind = name.split()[0]
            if kind in ("vanilla", "parallel", "hedged", "OR"):
                continue
            policy = {"SR": "lfu", "DC1": "lfu", "DC2": "lfu"}.get(kind, kind.split("+")[-1].lower())
            found[mount] = {**settings, "eviction": policy if policy in ("lru", "arc", "lfu") else "lfu"}
            if kind in ("LRU", "ARC", "LFU"):
                found[mount]["estimator"] = "none"
        return found or {"lake": settings}


# On 8 nodes half of the 100 files have a block on the slow node: more than a cache of 40 blocks holds, so that every kind of
# cache has files that it must do without. On 12 nodes, as in the paper, a third of them have, and all fit.
EXPERIMENTS = {each.name: each for each in (
    Experiment("skewed", "POCache experiment 3: Zipf reads, one straggler, contiguous", ("vanilla", "hedged", "SR", "paritas"),
               [("p95 s", "vanilla", (83.3, 83.3))]),
    Experiment("skewed-striped", "POCache experiment 3: Zipf reads, one straggler, striped",
               ("vanilla striped", "paritas striped"), [("p99 s", "vanilla striped", (85.0, 85.7))]),
    Experiment("sizes", "POCache experiment 4: files of 8, 4, 2 and 1 blocks, one straggler, contiguous",
               ("vanilla", "SR", "paritas"), [("mean s", "vanilla", (68.9, 81.9)), ("mean s", "SR", LOWEST)],
               blocks=random.Random(4).sample([8] * 15 + [4] * 30 + [2] * 17 + [1] * 38, 100), size=120),
    Experiment("sizes-striped", "POCache experiment 4: files of 8, 4, 2 and 1 blocks, one straggler, striped",
               ("vanilla striped", "paritas striped"), [("mean s", "vanilla striped", (50.8, 76.8))],
               blocks=random.Random(4).sample([8] * 15 + [4] * 30 + [2] * 17 + [1] * 38, 100), size=120),
    *(Experiment(name, f"POCache experiment 12: {nodes} nodes, caches of 40 blocks, one straggler",
                 ("LRU", "ARC", "LFU", "CSAC+LRU", "CSAC+ARC", "CSAC+LFU"),
                 [("p95 s", "LRU", (72.1, 75.8)), ("p95 s", "ARC", (84.2, 86.3)), ("p95 s", "LFU", (83.5, 85.7))],
                 nodes=nodes, size=40, filled=True)
      for name, nodes in (("caches", 12), ("caches-8", 8))),
    *(Experiment(name, f"POCache experiment 14: copies and parity, {nodes} nodes, caches of 40 blocks, one straggler",
                 ("SR", "DC1", "DC2", "OR", "paritas"), [("mean s", baseline, LOWEST) for baseline in ("SR", "DC1", "DC2", "OR")],
                 nodes=nodes, size=40, filled=True, alike=("OR", "DC1", "DC2"))
      for name, nodes in (("strategies", 12), ("strategies-8", 8))),
    *(Experiment("clients" if count == 4 else f"clients-{count}",
                 f"POCache experiment 5: {count} clients at once, one straggler, contiguous", ("vanilla", "SR", "paritas"),
                 [("mean s", "vanilla", (41.1, 57.3)), ("p95 s", "vanilla", (32.6, 55.4))], clients=count, easier=SHARED)
      for count in (4, 8, 12)),
    *(Experiment("clients-striped" if count == 4 else f"clients-{count}-striped",
                 f"POCache experiment 5: {count} clients at once, one straggler, striped", ("vanilla striped", "paritas striped"),
                 [("mean s", "vanilla striped", (31.1, 34.2)), ("p95 s", "vanilla striped", (31.7, 41.8))], clients=count,
                 easier=SHARED)
      for count in (4, 8, 12)),
    Experiment("moving", "POCache experiment 16: 28 nodes, a straggler that moves, cache of 40 blocks, contiguous",
               ("vanilla", "SR", "paritas"),
               [("mean s", "vanilla", (64.3, 64.3)), ("p95 s", "vanilla", (63.9, 63.9)), ("mean s", "SR", LOWEST)],
               nodes=28, size=40, moves_every=10, easier=MADE),
    Experiment("moving-striped", "POCache experiment 16: 28 nodes, a straggler that moves, cache of 40 blocks, striped",
               ("vanilla striped", "paritas striped"),
               [("mean s", "vanilla striped", (30.9, 30.9)), ("p95 s", "vanilla striped", (42.4, 42.4))],
               nodes=28, size=40, moves_every=10, easier=MADE),
)}


def ours(experiment, baseline):
    """The system of ours that a claim compares with that baseline."""
    if baseline in ("LRU", "ARC", "LFU"):
        return f"CSAC+{baseline}"
    return "paritas striped" if baseline.endswith("striped") else "paritas"


def run(stage, experiment, seeds, reads, out, warm_ups=WARM_UPS):
    hedger = None
    modes = {plain(name): workload.mode(stage, name, plain(name))
             for name in experiment.wanted if name != "hedged"}
    reader = stage.reader(modes, heap="1200m")
    if "hedged" in experiment.wanted:
        hedger = stage.reader({"hedged": workload.mode(stage, "hedged", "")})
    others = [stage.reader(modes, heap="600m") for _ in range(experiment.clients - 1)]
    world = World(stage, experiment.blocks, BLOCK_MIB)
    played = systems(stage, reader, experiment.wanted, hedger)
    world.write(reader, sorted({system.layout for system in played}))
    heartbeats = None
    if experiment.filled:
        heartbeats = Heartbeats(stage, [system.mode for system in played if system.name.startswith(INFORMED)])
    else:
        warm(stage, experiment, world, played, warm_ups)
    rows = []
    for seed in seeds:
        if heartbeats:
            fill(stage, experiment, world, played, warm_ups, heartbeats, seed)
        if others:
            together(stage, world, played, [reader, *others], seed, reads, rows, experiment.straggler(seed)(0))
        else:
            believe = [system for system in played if system.name in ("DC1", "OR")]
            play(stage, world, played, seed, reads, rows, experiment.straggler(seed), believe)
        write(out / f"{experiment.tables}-reads.csv", rows)
        print(f"seed {seed}", flush=True)
    if heartbeats:
        heartbeats.stop()
    save(experiment, rows, out)


def together(stage, world, played, readers, seed, reads, rows, slow):
    """Each system in turn: every client reads files of its own choice, one after the other, all clients at once."""
    stage.rates([slow])
    for system in random.Random(seed).sample(played, len(played)):
        stage.quiet()

        def client(number, reader, system=system):
            draw = random.Random(100 * seed + number)
            mine = workload.System(system.name, reader, system.mode, system.layout)
            for read in range(reads):
                chosen = world.next_file(draw)
                seconds, cached = mine.read(stage, chosen, quiet=False)
                rows.append({"seed": seed, "client": number, "read": read, "file": chosen, "slow node": slow,
                             "on slow node": int(slow in world.on[system.layout][chosen]), "system": system.name,
                             "seconds": f"{seconds:.4f}", "blocks from cache": cached, "load": f"{workload.load():.1f}"})
            reader.ok("settle", system.mode)

        threads = [threading.Thread(target=client, args=each) for each in enumerate(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def warm(stage, experiment, world, played, warm_ups):
    """Reads that do not count. Where the cache has room for all files, each file's parity is made, as the paper's writers do.
    Where it has not, and for copies, the files are drawn by the same law as those that count."""
    draw = random.Random(0)
    for system in played:
        if system.name in ("vanilla", "vanilla striped", "hedged", "OR", "parallel"):
            stage.unshaped()
            for number in range(10):
                system.read(stage, number, quiet=False)
        elif system.name.startswith("paritas") and experiment.size >= sum((count + 3) // 4 for count in experiment.blocks):
            # With links that are not shaped, a node that was slow by chance would be taken for a straggler.
            stage.rates()
            for _ in range(PASSES):
                for number in range(len(world.blocks)):
                    system.read(stage, number, quiet=False)
                if stage.status(system.mode)["commits"] >= len(world.blocks):
                    break
            print(f"{stage.status(system.mode)['commits']} of {len(world.blocks)} files have parity", flush=True)
        else:
            stage.unshaped()
            for _ in range(warm_ups):
                system.read(stage, world.next_file(draw), quiet=False)
                system.reader.ok("settle", system.mode)
    stage.rates()


def fill(stage, experiment, world, played, warm_ups, heartbeats, seed):
    """Reads that do not count, while the seed's straggler is slow: each system reads each file once, in an order that is drawn,
    and then by Zipf's law. So the caches are those of a run that has lasted. Stewards of systems that look for stragglers are
    told the nodes' rates."""
    slow = experiment.straggler(seed)(0)
    heartbeats.tell(stage.bits, [slow], SLOW_DIVISOR)
    for mode in heartbeats.mounts:
        if mode not in ("LRU", "ARC", "LFU"):
            until(lambda mode=mode: stage.status(mode)["stragglers"] == [stage.node(slow)], f"{mode} finds the straggler", 180)
    stage.rates([slow], hurry=HURRY)
    draw = random.Random(seed)
    order = draw.sample(range(len(world.blocks)), len(world.blocks))
    order += [world.next_file(draw) for _ in range(warm_ups)]
    for system in played:
        if system.name in ("DC1", "OR"):
            system.reader.ok("believe", system.mode, stage.node(slow))
        for number in order if system.name != "OR" else order[:10]:
            system.read(stage, number, quiet=False)
            system.reader.ok("settle", system.mode)
        print(f"{system.name} is ready", flush=True)


def sure_tail(rows, mine, baseline, percent):
    """Percent that we take off a percentile of the baseline's reads, with a probability of 95 %. Reads of one file go together."""
    reads = {}
    for row in rows:
        reads.setdefault((row["seed"], row.get("client"), row["read"]), {})[row["system"]] = float(row["seconds"])
    pairs = [(read[mine], read[baseline]) for read in reads.values()]

    def less(drawn):
        ours, theirs = zip(*drawn)
        return 100 * (1 - percentile(ours, percent) / percentile(theirs, percent))

    return sure_least(pairs, less)


def save(experiment, rows, out):
    summary = summarise(rows, experiment.wanted)
    claims = []
    for what, baseline, paper in experiment.claims:
        mine = ours(experiment, baseline)
        percent = off(summary, mine, baseline, what)
        said = verdict(percent, paper, NOISE, experiment.easier)
        if what[0] == "p" and percent >= paper[0]:
            # A tail that a few reads decide is no result.
            less = sure_tail(rows, mine, baseline, int(what[1:3]))
            if less < paper[0]:
                said = f"trend only: {less:.1f} % is sure with these reads"
        text = f"{paper[0]} to {paper[1]} % off" if paper != LOWEST else "lowest latency"
        claims.append({"what": what.removesuffix(" s"), "of": mine, "against": baseline,
                       "off %": f"{percent:.1f}", "paper": text, "verdict": said})
    if experiment.alike:
        means = [float(line["mean s"]) for line in summary if line["system"] in experiment.alike]
        apart = 100 * (1 - min(means) / max(means))
        claims.append({"what": "mean", "of": " ".join(experiment.alike), "against": "each other", "off %": f"{apart:.1f}",
                       "paper": "alike", "verdict": "reproduced" if apart <= ALIKE else "not reproduced"})
    for line in (*summary, *claims):
        print(line, flush=True)
    write(out / f"{experiment.tables}.csv", summary)
    write(out / f"{experiment.tables}-verdicts.csv", claims)
    values = {}
    for line in summary:
        for what, spread in (("mean", line["means of seeds"]), ("p95", line["p95 of seeds"])):
            low, high = map(float, spread.split(" to "))
            middle = min(max(float(line[f"{what} s"]), low), high)
            values[line["system"], what] = middle, low, high
    bars(out / f"{experiment.tables}.png", f"{experiment.title}; bars: least and most of the seeds",
         list(experiment.wanted), ["mean", "p95"], values, "seconds")
