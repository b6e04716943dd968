"""The other points of POCache's experiments 12 and 14 (§5.3): not measured but computed from the straggler hit ratios that the
real cache algorithm has in simulation (`paritas lab run pocache-hit-ratio`, `pocache-strategies`). A read takes the time of one
block, and of seven where it has to wait for the straggler: all systems read blocks at once. So there is no queue, no cost of
encoding, and no node that is a little slow. The model can only say 0 or 85.7 %, so it gives no verdicts."""

from .report import read, write
from .stage import SLOW_DIVISOR

SIZES = (40, 60, 80)
SOURCES = {"12": "pocache-hit-ratio-spread.csv", "14": "pocache-strategies-spread.csv"}
# Off the p95 of the plain cache with the same eviction, cache of 40.
PAPER = {"LRU": (72.1, 75.8), "ARC": (84.2, 86.3), "LFU": (83.5, 85.7)}


def tail(ratio):
    """The 95th percentile: seven block times if more than 5 % of the reads wait."""
    return SLOW_DIVISOR if ratio > 5 else 1


def save(out):
    rows = []
    for experiment, source in SOURCES.items():
        found = {(line["system"], int(line["cache size"])): line for line in read(out / source)}
        for (system, size), line in found.items():
            if size not in SIZES:
                continue
            ratio = float(line["median"])
            row = {"experiment": experiment, "system": system, "cache size": size, "how": "simulated",
                   "straggler hit ratio %": line["median"], "mean, in block times": f"{1 + (SLOW_DIVISOR - 1) * ratio / 100:.2f}",
                   "p95, in block times": tail(ratio), "p95 off the plain cache %": "", "paper": ""}
            plain = system.removeprefix("CSAC+")
            if plain != system:
                other = float(found[plain, size]["median"])
                off = round(100 * (1 - tail(ratio) / tail(other)), 1)
                row["p95 off the plain cache %"] = f"{off:.1f}"
                if size == 40:
                    row["paper"] = "{} to {} %".format(*PAPER[plain])
            rows.append(row)
    write(out / "pocache-latency-model.csv", rows)
    for row in rows:
        print(row)
