"""Figures 8 and 9: time of a Set and of a Get by the length of the value, without a failure and with two servers stopped."""

import json
import os
import subprocess
import sys

import on_hosts
from files_lab import report

from .network import ROOT, Links

SERVERS, SCHEME = 5, "3+2"
# As low as three data blocks of 4 KiB allow.
LARGE_FROM, ENCODE_BYTES_MIN = "12kb", (12 << 10) + 1
STOPPED = [3, 4]
SIZES = [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]
WINDOWS = [1, 8]
# From here on a cell whose link was less busy than this claims nothing about links.
LINK_BYTES, LINK_BUSY = 64 << 10, 0.8
REPLICATIONS = {"no replication": {}, "Sync-Rep": {"copies": 3, "is_sync": True}, "Async-Rep": {"copies": 3}}
SETS = {"CE": {"encode": "client"}, "SE": {"encode": "server"}, "auto": {"encode": "auto"}}
GETS = {"CD": {"decode": "client"}, "SD": {"decode": "server"}, "auto": {"decode": "auto"}}
# The paper's links, in bytes a second.
PAPER_LINK = 32e9 / 8
COLUMNS = ["servers stopped", "operation", "bytes", "window", "system", "median ms", "least ms", "most ms", "request ms", "coding ms",
           "wait ms", "client's link busy", "busiest server of the mean"]


class Lab:
    def __init__(self, stage, options):
        self.stage, self.options, self.cells = stage, options, {}

    def drive(self, job, host=SERVERS):
        """What one client has measured."""
        command = [*self.stage.network.command(host), sys.executable, "-m", "online_ec_lab.client", json.dumps(job)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise SystemExit(f"online-ec-lab: {job['system']} {job['op']} of {job['bytes']} bytes: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout)

    def server_bytes(self):
        """Bytes that each server's link has carried."""
        found = []
        for host in range(SERVERS):
            path = "/sys/class/net/eth0/statistics"
            words = [*self.stage.network.command(host), "cat", f"{path}/tx_bytes", f"{path}/rx_bytes"]
            found.append(sum(map(int, subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())))
        return found

    def cell(self, stopped, system, job):
        before = self.server_bytes()
        found = self.drive({"seconds": self.options.seconds, "keys": keys_of(job["bytes"]), "seed": 1, **job})
        moved = [after - earlier for earlier, after in zip(before, self.server_bytes())]
        moved = [bytes_ for host, bytes_ in enumerate(moved) if not stopped or host not in STOPPED]
        link = self.options.mbit * 1e6 / 8
        found["busy"] = max(found["sent"], found["got"]) / (found["seconds"] * link)
        found["skew"] = max(moved) * len(moved) / max(1, sum(moved))
        self.cells.setdefault((stopped, job["op"], job["bytes"], job["window"], system), []).append(found)

    def fill(self, job):
        """All keys of each length, written without limits of the links."""
        self.stage.network.shape(None, None)
        for size in SIZES:
            self.drive({**job, "op": "set", "all": True, "bytes": size, "keys": keys_of(size), "window": 8, "seed": 1,
                        "prefix": str(size)})
        self.stage.network.shape(self.options.mbit, self.options.delay_ms)

    def all_read(self, job):
        for size in SIZES:
            found = self.drive({**job, "op": "get", "all": True, "bytes": size, "keys": keys_of(size), "window": 1, "seed": 1,
                                "prefix": str(size)})
            if found["missed"]:
                raise SystemExit(f"online-ec-lab: {found['missed']} values of {size} bytes are missing after two servers stopped")

    def each(self, op, placements, stopped, job):
        for size in SIZES:
            for window in WINDOWS:
                for name, how in placements.items():
                    if how.get("encode", how.get("decode")) in ("client", "auto") and size < ENCODE_BYTES_MIN:
                        # A value that lies in stripes with others is neither encoded nor decoded by a client.
                        continue
                    self.cell(stopped, name, {**job, **how, "op": op, "bytes": size, "window": window, "prefix": str(size)})

    def once(self):
        job = {"system": "memcached"}
        for name, how in REPLICATIONS.items():
            job["addresses"] = self.stage.memcached(SERVERS, 1024)
            self.fill({**job, **how})
            self.each("set", {name: how}, False, job)
            self.each("get", {name: how}, False, job)
            if name == "Async-Rep":
                self.stage.stop(STOPPED)
                self.each("get", {name: how}, True, job)
            self.stage.end()
        job = {"system": "paritas", "encode_bytes_min": ENCODE_BYTES_MIN, "encode": "server", "decode": "server"}
        self.stage.network.shape(None, None)
        job["addresses"] = start_paritas(self.stage, "512mb")
        self.fill(job)
        self.each("set", SETS, False, job)
        self.each("get", GETS, False, job)
        self.stage.stop(STOPPED)
        job["addresses"] = job["addresses"][: STOPPED[0]]
        self.all_read(job)
        self.each("get", GETS, True, job)
        self.stage.end()

    def rows(self):
        for (stopped, op, size, window, system), found in self.cells.items():
            times = sorted(each["each_ms"] for each in found)
            phases = {name: [each["phases_ms"][name] for each in found if "phases_ms" in each] for name in ("request", "coding", "wait")}
            median = {name: f"{sorted(values)[len(values) // 2]:.3f}" if values else "" for name, values in phases.items()}
            values = [2 if stopped else 0, op, size, window, system, *(f"{at:.3f}" for at in (times[len(times) // 2], times[0], times[-1])),
                      median["request"], median["coding"], median["wait"],
                      f"{min(each['busy'] for each in found):.2f}", f"{max(each['skew'] for each in found):.2f}"]
            yield dict(zip(COLUMNS, map(str, values)))

    def ratios(self, over, under):
        """Of each round: time of one cell over that of another."""
        one, other = self.cells.get(over), self.cells.get(under)
        if not one or not other:
            return None
        return sorted(a["each_ms"] / b["each_ms"] for a, b in zip(one, other))

    def busy(self, *cells):
        """The link of a client in the least busy of these cells."""
        return min(each["busy"] for cell in cells for each in self.cells[cell])


def start_paritas(stage, memory):
    return stage.paritas(SERVERS, SCHEME, memory, "4kb", client_coding="on", large_from=LARGE_FROM)


def keys_of(size):
    return 64 if size >= 256 << 10 else 256


def told(ratios, least, most):
    """A verdict by all rounds: a bar between the least and the most of them is not told from noise."""
    if all(least <= ratio <= most for ratio in ratios):
        return "met"
    if any(least <= ratio <= most for ratio in ratios):
        return "not met: not told from noise"
    return "not met"


def claims(lab):
    """(what is claimed, the paper's, by length (over, under), least, most). Times are those with eight under way."""
    cell = lambda op, size, system, stopped=False, window=8: (stopped, op, size, window, system)
    large = [size for size in SIZES if size >= ENCODE_BYTES_MIN]

    def of(sizes, op, over, under, stopped=(False, False), window=8):
        return {size: (cell(op, size, over, stopped[0], window), cell(op, size, under, stopped[1], window)) for size in sizes}

    infinite = float("inf")
    yield "Set: Sync-Rep takes 1.6 times CE's time or more, from 16 KiB", "1.6 to 2.8", of(large, "set", "Sync-Rep", "CE"), 1.6, infinite, all
    yield "Set: Sync-Rep takes 2.8 times CE's time or more, at the best length", "2.8", of(large, "set", "Sync-Rep", "CE"), 2.8, infinite, any
    yield "Set: Async-Rep takes 1.5 times CE's time or more, from 64 KiB", "", of(large[1:], "set", "Async-Rep", "CE"), 1.5, infinite, all
    for window, least in ((1, 0.15), (8, 0.25)):
        yield (f"Set: SE takes {100 * least:.0f} to 40 % less time than CE from 256 KiB, {window} under way", "up to 38 %",
               of(SIZES[-2:], "set", "SE", "CE", window=window), 0.6, 1 - least, all)
    yield "Get: CD takes at most 1.05 times Async-Rep's time, from 16 KiB", "alike", of(large, "get", "CD", "Async-Rep"), 0, 1.05, all
    yield ("Get with two servers stopped: CD takes at most 1.05 times Async-Rep's time, from 16 KiB", "1.27",
           of(large, "get", "CD", "Async-Rep", (True, True)), 0, 1.05, all)
    yield "Get: SD takes more time than CD where links are the limit, from 256 KiB", "2.2", of(SIZES[-2:], "get", "SD", "CD"), 1.0, infinite, all
    for op, ways, stopped in (("set", ("CE", "SE"), False), ("get", ("CD", "SD"), False), ("get", ("CD", "SD"), True)):
        best = {}
        for size in large:
            faster = min(ways, key=lambda way, size=size: sum(each["each_ms"] for each in lab.cells[cell(op, size, way, stopped)]))
            best[size] = (cell(op, size, "auto", stopped), cell(op, size, faster, stopped))
        where = ", two servers stopped" if stopped else ""
        yield f"{op.capitalize()}{where}: auto takes at most 1.1 times the better way's time, from 16 KiB", "", best, 0, 1.1, all


def verdicts(lab):
    for text, paper, pairs, least, most, how in claims(lab):
        found, notes, said = [], [], []
        for size, (over, under) in pairs.items():
            ratios = lab.ratios(over, under)
            busy = max(lab.busy(over), lab.busy(under))
            if size > LINK_BYTES and busy < LINK_BUSY:
                notes.append(f"{size >> 10} KiB: no link was the limit ({100 * busy:.0f} %)")
                continue
            found.append(told(ratios, least, most))
            said.append(f"{size >> 10} KiB {ratios[0]:.2f} to {ratios[-1]:.2f}")
        if not found:
            verdict = "no verdict"
        elif how is any:
            verdict = "met" if "met" in found else max(found, key=len)
        else:
            verdict = "met" if set(found) == {"met"} else "not met" if "not met" in found else "not met: not told from noise"
        yield {"claim": text, "paper": paper, "ours": "; ".join(said), "verdict": verdict, "reason": "; ".join(notes)}


def by_arithmetic(lab):
    """A Get of 1 MiB with two servers stopped, on the paper's links: what decoding adds to the time on the link."""
    found = lab.cells[(True, "get", 1 << 20, 1, "CD")]
    coding_ms = sorted(each["phases_ms"]["coding"] for each in found)[len(found) // 2]
    link_ms = 1e3 * (1 << 20) / PAPER_LINK
    ratio = (link_ms + coding_ms) / link_ms
    yield {"claim": "Get of 1 MiB with two servers stopped, on links of 32 Gbit/s by arithmetic: CD over Async-Rep at most 1.27",
           "paper": "1.27", "ours": f"{ratio:.2f}: decoding {coding_ms:.3f} ms, link {link_ms:.3f} ms",
           "verdict": "met" if ratio <= 1.27 else "not met", "reason": ""}


def run(options):
    with Links(SERVERS + 1) as network, on_hosts.Stage(network) as stage:
        lab = Lab(stage, options)
        for at in range(options.rounds):
            lab.once()
            print(f"round {at + 1} of {options.rounds} is done", flush=True)
    report.write(options.out / "online-ec-figure8.csv", list(lab.rows()))
    told_ = [*verdicts(lab), *by_arithmetic(lab)]
    report.write(options.out / "online-ec-figure8-verdicts.csv", told_)
    for line in told_:
        print(f"{line['verdict']}: {line['claim']}: {line['ours']} {line['reason']}")
    groups = [f"{size >> 10} KiB" for size in SIZES if size >= 16 << 10]
    for op, systems_ in (("set", [*REPLICATIONS, *SETS]), ("get", [*REPLICATIONS, *GETS])):
        values = {}
        for (stopped, what, size, window, system), found in lab.cells.items():
            if what == op and not stopped and window == 8 and size >= 16 << 10:
                # Milliseconds a MiB: all lengths in one plot.
                times = [each["each_ms"] * (1 << 20) / size for each in found]
                values[f"{size >> 10} KiB", system] = report.spread(times)
        title = f"{op.capitalize()}, {SERVERS} servers, links of {options.mbit} Mbit/s, {options.delay_ms} ms each way, eight under way"
        report.bars(options.out / f"online-ec-figure8-{op}.png", title, groups, systems_, values, "ms for a MiB")
