"""POCache's experiments 8 and 9 (§5.2): reads of one subblock, and of a file in subblocks of several sizes."""

import random
import statistics

from .report import bars, spread, write
from .stage import MIB, PARITAS, SLOW_DIVISOR, committed, load

SEED = 7
K = 4
SIZES_KIB = (256, 512, 1024, 2048, 4096, 8192)
BLOCK_MIB = 8
WARM_UPS = 3


def mounts():
    return {f"s{size}": {"blocks": 20, "subblock": f"{size}kb"} for size in SIZES_KIB}


def open_files(stage):
    modes = {"vanilla": []}
    for size in SIZES_KIB:
        modes[f"s{size}"] = [PARITAS, "fs.paritas.read.policy=whole-file", f"fs.paritas.k={K}",
                             f"fs.paritas.subblock={size}k", *stage.files(f"s{size}")]
    reader = stage.reader(modes)
    reader.ok("write", "/file", K * BLOCK_MIB * MIB, BLOCK_MIB * MIB, SEED, *(stage.node(i) for i in range(K)))
    return reader


def subblock_reads(stage, reader, seeds, reads, out):
    """E8. A read of 1 MiB by position from a node, from a straggler, and from the cache."""
    rows = []
    for seed in seeds:
        draw = random.Random(seed)
        slow = draw.randrange(K)
        healthy = (slow + 1) % K
        stage.rates([slow])
        for read in range(reads):
            place = draw.randrange(BLOCK_MIB) * MIB
            for what, node in (("node", healthy), ("straggler", slow)):
                stage.quiet()
                ns = int(reader.ok("range", "vanilla", "/file", SEED, node * BLOCK_MIB * MIB + place, MIB))
                rows.append({"seed": seed, "read": read, "from": what, "ms": f"{ns / 1e6:.3f}", "load": f"{load():.1f}"})
            ns = int(reader.ok("value", stage.cache_address, MIB))
            rows.append({"seed": seed, "read": read, "from": "cache", "ms": f"{ns / 1e6:.3f}", "load": f"{load():.1f}"})
    write(out / "pocache-subblock-reads.csv", rows)
    times = {what: [float(row["ms"]) for row in rows if row["from"] == what] for what in ("node", "straggler", "cache")}
    means = {what: statistics.mean(values) for what, values in times.items()}
    summary = []
    for what, values in times.items():
        # A straggler is a link of a seventh of the rate, and the cache's link is not shaped: both would come out by themselves.
        paper, told = {"node": ("", ""), "straggler": ("over 7 times a node's", "no verdict: the links alone give 7 times"),
                       "cache": ("the least", "no verdict: the cache's link is not shaped")}[what]
        summary.append({"from": what, "reads": len(values), "mean ms": f"{means[what]:.2f}",
                        "standard deviation ms": f"{statistics.stdev(values):.2f}",
                        "median ms": f"{statistics.median(values):.2f}", "paper": paper, "verdict": told})
        print(summary[-1], flush=True)
    write(out / "pocache-subblock.csv", summary)


def subblock_sizes(stage, reader, seeds, reads, out):
    """E9. Reads of a file of four blocks, subblocks of 256 KiB to a whole block."""
    for size in SIZES_KIB:
        for _ in range(WARM_UPS):
            stage.seconds(reader, f"s{size}", "/file", SEED)
        committed(stage, f"s{size}", 1)
    rows = []
    for seed in seeds:
        draw = random.Random(seed)
        slow = draw.randrange(K)
        for stragglers in (0, 1):
            stage.rates([slow] * stragglers)
            for read in range(reads):
                order = list(SIZES_KIB)
                draw.shuffle(order)
                for size in order:
                    seconds, _ = stage.seconds(reader, f"s{size}", "/file", SEED)
                    rows.append({"stragglers": stragglers, "seed": seed, "read": read, "subblock KiB": size,
                                 "seconds": f"{seconds:.4f}", "load": f"{load():.1f}"})
        write(out / "pocache-subblock-sizes-reads.csv", rows)
    summary, values = [], {}
    for stragglers in (0, 1):
        times = {size: [float(row["seconds"]) for row in rows
                        if row["subblock KiB"] == size and row["stragglers"] == stragglers] for size in SIZES_KIB}
        means = {size: statistics.mean(values) for size, values in times.items()}
        best = min(means, key=means.get)
        for size, each in times.items():
            values[f"{size} KiB", f"{stragglers} slow"] = spread(each)
            line = {"stragglers": stragglers, "subblock KiB": size, "reads": len(each), "mean s": f"{means[size]:.4f}",
                    "median s": f"{statistics.median(each):.4f}", "largest s": f"{max(each):.4f}",
                    "over the least mean %": f"{100 * (means[size] / means[best] - 1):.1f}", "paper": "", "verdict": ""}
            if size == 1024:
                line["paper"] = "the least mean"
                line["verdict"] = "reproduced" if size == best else \
                    f"not reproduced: {best} KiB is {100 * (1 - means[best] / means[size]):.1f} % below"
            summary.append(line)
            print(line, flush=True)
    write(out / "pocache-subblock-sizes.csv", summary)
    bars(out / "pocache-subblock-sizes.png", "POCache experiment 9: read of 4 blocks of 8 MiB by subblock size; median and quarters",
         [f"{size} KiB" for size in SIZES_KIB], ["0 slow", "1 slow"], values, "seconds")
