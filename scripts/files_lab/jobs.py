"""POCache's experiments 6 and 10 (§5.1, §5.2): wordcount, sort and terasort with one straggler. Hadoop's own MapReduce and its
example programs, in one JVM (LocalJobRunner): HiBench, which the paper has, is not needed for these three."""

import os
import random
import re
import statistics
import subprocess
import time

from .report import bars, spread, verdict, write
from .stage import HADOOP, JAVA, MIB, PARITAS, ROOT, committed, load

LIBRARIES = ROOT / "target/hdfs" / HADOOP / "jobs"
K = 4
NODES = 8
# Small blocks and slow links: so the program waits for links and not for cores, of which this machine has two.
BLOCK_MIB = 4
MBIT = 50
# Inputs: files of four blocks, as in the paper. TeraGen makes rows of 100 bytes.
FILES = 4
# Each file has the same ones: rows with the same key are the same, so their order does not matter.
TERA_ROWS = K * BLOCK_MIB * MIB // 100
REDUCES = 2
MAPS_AT_ONCE = 2
EXAMPLES = "org.apache.hadoop.examples"
# Percent by which a part must be below to be told from noise.
LESS = 3
PAPER = (13.0, 29.3)
SYSTEMS = ("vanilla", "paritas")
JOBS = ("wordcount", "sort", "terasort")
LOGGING = """log4j.rootLogger=ERROR,console
log4j.logger.org.apache.hadoop.mapred.LocalJobRunner=INFO
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%r %c{1}: %m%n
"""
SPLITS = {"4 blocks": K, "1 block": 1}


def mounts():
    return {"lake": {"blocks": 200, "block": f"{BLOCK_MIB}mb"}}


def missing():
    return None if LIBRARIES.is_dir() else "no jars of MapReduce: run `scripts/build-java --jobs`"


class Cluster:
    """Inputs whose blocks are spread evenly: each node has as many of them as any other."""

    def __init__(self, stage):
        self.stage = stage
        self.settings = {"vanilla": ["fs.hdfs.impl=io.paritas.lab.TimedReads$Vanilla"],
                         "paritas": ["fs.hdfs.impl=io.paritas.lab.TimedReads$Paritas", f"fs.paritas.k={K}",
                                     "fs.paritas.min.file=1m",
                                     "fs.paritas.read.policy=whole-file", *stage.files("lake")]}
        self.logging = stage.directory / "jobs.properties"
        self.logging.write_text(LOGGING, encoding="ascii")
        self.reader = stage.reader({"vanilla": [], "paritas": [PARITAS, *self.settings["paritas"][1:]]})
        stage.unshaped()
        words = stage.directory / "words"
        names = [stage.node(i) for i in range(NODES)]
        draw = random.Random(1)
        vocabulary = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 12))) for _ in range(5000)]
        for number in range(FILES):
            # No two lines have the same key: their order in the output is fixed.
            lines = (f"{draw.getrandbits(48):012x}\t{' '.join(draw.choices(vocabulary, k=24))}\n" for _ in iter(int, 1))
            with open(words, "w", encoding="ascii") as file:
                size = 0
                while size < (K * BLOCK_MIB - 1) * MIB:
                    size += file.write(next(lines))
            nodes = [names[(number * K + block) % NODES] for block in range(K)]
            self.reader.ok("put", f"/words/{number}", f"file://{words}", BLOCK_MIB * MIB, *nodes)
        self.java(f"{EXAMPLES}.terasort.TeraGen", "vanilla", [], str(TERA_ROWS), "/generated")
        for number in range(FILES):
            nodes = [names[(number * K + block) % NODES] for block in range(K)]
            self.reader.ok("put", f"/tera/{number}", "/generated/part-m-00000", BLOCK_MIB * MIB, *nodes)
            for directory in ("words", "tera"):
                self.reader.ok("drain", "paritas", f"/{directory}/{number}")
        committed(stage, "lake", 2 * FILES)
        stage.rates()

    def java(self, main, system, settings, *arguments):
        options = ["mapreduce.framework.name=local", f"mapreduce.local.map.tasks.maximum={MAPS_AT_ONCE}",
                   f"mapreduce.cluster.local.dir={self.stage.directory}/local", f"dfs.blocksize={BLOCK_MIB * MIB}",
                   f"hadoop.tmp.dir={self.stage.directory}/tmp", "mapreduce.task.io.sort.mb=64",
                   f"mapreduce.job.reduces={REDUCES}", *settings, *self.settings[system]]
        command = [*self.stage.bridge.command(self.stage.nodes + 1), *JAVA, "-Xmx1500m",
                   f"-Dlog4j.configuration=file:{self.logging}", "-cp", f"{self.stage.hdfs.class_path}:{LIBRARIES}/*", main,
                   *(word for option in options for word in ("-D", option)), *arguments]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False,
                              cwd=self.stage.directory,  # TeraSort leaves a file there
                              env={**os.environ, "HADOOP_USER_NAME": "root"})
        if done.returncode != 0:
            raise RuntimeError(f"{main}: {done.stdout[-1000:]} {done.stderr[-3000:]}")
        return time.monotonic() - started, done.stderr + done.stdout

    def run(self, job, system, split):
        """Seconds of the whole program, what its output is, and what its log tells of tasks and reads."""
        settings = [f"mapreduce.input.fileinputformat.split.minsize={SPLITS[split] * BLOCK_MIB * MIB}"]
        out = f"/out/{job}"
        self.reader.ok("delete-all", out)
        self.stage.quiet()
        formats = ["-inFormat", "org.apache.hadoop.mapreduce.lib.input.KeyValueTextInputFormat", "-outFormat",
                   "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat", "-outKey", "org.apache.hadoop.io.Text",
                   "-outValue", "org.apache.hadoop.io.Text"]
        program, arguments = {
            "wordcount": ("WordCount", ["/words", out]),
            "sort": ("Sort", ["-r", str(REDUCES), *formats, "/words", out]),
            "terasort": ("terasort.TeraSort", ["/tera", out]),
        }[job]
        seconds, log = self.java(f"{EXAMPLES}.{program}", system, settings, *arguments)
        return seconds, self.reader.ok("digest", out), tasks(log)


def tasks(log):
    """Mean seconds of map and reduce tasks, and seconds that all readers waited for bytes."""
    began, times = {}, {"m": [], "r": []}
    for line in log.splitlines():
        found = re.match(r"(\d+) .*(Starting|Finishing) task: attempt_\w+_(m|r)_(\d+)_\d+", line)
        if found:
            at, what, kind, number = int(found[1]), found[2], found[3], found[4]
            if what == "Starting":
                began[kind, number] = at
            else:
                times[kind].append((at - began[kind, number]) / 1000)
    waited = re.search(r"read-ns=(\d+)", log)
    return {"maps": len(times["m"]), "map s": f"{statistics.mean(times['m']):.3f}",
            "reduce s": f"{statistics.mean(times['r']):.3f}", "reads s": f"{int(waited[1]) / 1e9:.3f}"}


def measure(stage, seeds, normal_seeds, rows, keep):
    """Each job by both systems, one after the other in an order that is drawn. The straggler sends slowly and takes what is
    written to it as fast as others: the paper's has a slow disk for reads."""
    cluster = Cluster(stage)
    outputs = {}
    for seed in seeds:
        draw = random.Random(seed)
        slow = draw.randrange(NODES)
        for stragglers in (1, 0) if seed in normal_seeds else (1,):
            stage.rates()
            if stragglers:
                stage.slow_sender(slow)
            for split in SPLITS if seed in normal_seeds else ["4 blocks"]:
                for job in JOBS:
                    for system in draw.sample(SYSTEMS, len(SYSTEMS)):
                        seconds, digest, told = cluster.run(job, system, split)
                        if outputs.setdefault(job, digest) != digest:
                            raise AssertionError(f"{job} by {system}: its output has other bytes")
                        rows.append({"job": job, "split": split, "stragglers": stragglers, "seed": seed, "system": system,
                                     "seconds": f"{seconds:.3f}", **told, "output": digest[:16], "load": f"{load():.1f}"})
                        print(rows[-1], flush=True)
                        keep()


def summarise(rows):
    summary, groups = [], []
    for row in rows:
        group = row["job"], row["split"], row["stragglers"]
        if group not in groups:
            groups.append(group)
    for job, split, stragglers in sorted(groups, key=lambda group: (group[1] != "4 blocks", -group[2], JOBS.index(group[0]))):
        here = [row for row in rows if (row["job"], row["split"], row["stragglers"]) == (job, split, stragglers)]
        times = {system: {row["seed"]: float(row["seconds"]) for row in here if row["system"] == system}
                 for system in SYSTEMS}
        mean = {(system, what): statistics.mean(float(row[what]) for row in here if row["system"] == system)
                for system in SYSTEMS for what in ("map s", "reduce s", "reads s")}
        pairs = spread([100 * (1 - times["paritas"][seed] / times["vanilla"][seed]) for seed in times["paritas"]])
        line = {"job": job, "split": split, "stragglers": stragglers, "seeds": len(times["paritas"])}
        for system in SYSTEMS:
            middle, low, high = spread(list(times[system].values()))
            line |= {f"{system} s": f"{middle:.2f}", f"{system} quarters": f"{low:.2f} to {high:.2f}",
                     **{f"{system} {what}": f"{mean[system, what]:.2f}" for what in ("map s", "reduce s", "reads s")}}
        line |= {"off vanilla %": f"{pairs[0]:.1f}", "off quarters": f"{pairs[1]:.1f} to {pairs[2]:.1f}"}
        if stragglers and split == "4 blocks":
            line |= {"paper": f"{PAPER[0]} to {PAPER[1]} % off vanilla", "verdict": verdict(pairs[0], PAPER, 0)}
        elif not stragglers and split == "4 blocks":
            line |= {"paper": "similar to vanilla",
                     "verdict": "no verdict: one seed" if line["seeds"] == 1 else "reproduced" if abs(pairs[0]) <= 5 else
                                "not reproduced: " + ("faster" if pairs[0] > 0 else "slower") + " than vanilla"}
        else:
            line |= {"paper": "", "verdict": "not in the paper"}
        summary.append(line)
        print(line, flush=True)
    return summary


def save(out, rows):
    summary = summarise(rows)
    write(out / "pocache-jobs.csv", summary)
    # Experiment 10: the parts of wordcount.
    parts = next(line for line in summary if (line["job"], line["split"], line["stragglers"]) == ("wordcount", "4 blocks", 1))
    claims = []
    for what in ("map s", "reads s", "reduce s"):
        ours, theirs = (float(parts[f"{system} {what}"]) for system in ("paritas", "vanilla"))
        told = "reproduced" if ours < (1 - LESS / 100) * theirs else "not reproduced"
        claims.append({"claim": f"wordcount, {what}: below vanilla's", "paper": "below", "ours": f"{ours:.2f}",
                       "vanilla": f"{theirs:.2f}", "verdict": told})
    write(out / "pocache-jobs-verdicts.csv", claims)
    groups, values = [], {}
    for line in summary:
        group = f"{line['job']}\n{line['split']}\n{line['stragglers']} slow"
        groups.append(group)
        for system in SYSTEMS:
            low, high = map(float, line[f"{system} quarters"].split(" to "))
            values[group, system] = float(line[f"{system} s"]), low, high
    paper = {f"{line['job']}\n{line['split']}\n{line['stragglers']} slow": float(line["vanilla s"]) * (1 - PAPER[1] / 100)
             for line in summary if line["stragglers"] and line["split"] == "4 blocks"}
    bars(out / "pocache-jobs.png", "POCache experiment 6: jobs of Hadoop's MapReduce in one JVM; median and quarters", groups,
         SYSTEMS, values, "seconds", [("paper, most off vanilla", paper)])
