"""Real client libraries against a real cluster: `make clients`.

Each program of the folders beside this file does with one client what an application does, and prints one line for each
thing that it tried. Everything has to work but what `missing.csv` names, and what that names must not work. Then the
programs write and read while a node is killed, or stands still, and what they saw is counted. `--page` writes both into docs/clients.md.
"""

import argparse
import collections
import csv
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from conftest import BINARY, Cluster, until  # noqa: E402  (its folder is not that of this program)

BUILT = ROOT / "target" / "clients"
PAGE = ROOT / "docs" / "clients.md"
NODES = 6
# The node that is killed, and the one beside it that the programs' other plain clients use.
VICTIM = 3
# Longest run of one program, and longest wait for a client to go on after a node was replaced.
PROGRAM_S_MAX = 180
BACK_S_MAX = 60
# How long a node stands still.
STOPPED_S = 10
# What a client does before the node is killed, and after it was replaced.
OPERATIONS_MIN = 100

JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{BUILT}/java/classes:{BUILT}/java/lib/*"]
# Each language's programs, in the order of the page; `ride` are those that also see a node die.
PROGRAMS = {
    "python": {"command": [sys.executable], "folder": "python", "ending": ".py"},
    "node": {"command": ["node"], "folder": "node", "ending": ".mjs"},
    "go": {"command": [f"{BUILT}/go/clients"], "folder": "go", "ending": ".go"},
    "java": {"command": JAVA, "folder": "java", "ending": ".java"},
    "rust": {"command": [f"{BUILT}/rust/debug/clients"], "folder": "rust", "ending": ".rs"},
    "ruby": {"command": ["ruby"], "folder": "ruby", "ending": ".rb"},
}
# What the programs of a folder share. It is no client.
SHARED = {"trial", "Trial", "main"}

Check = collections.namedtuple("Check", "client version port what result why")
Saw = collections.namedtuple("Saw", "errors silent_s words")
Seen = collections.namedtuple("Seen", "client version how kill stop")


def programs(language):
    """Name and command of each program of a language, and whether it goes on while a node dies."""
    kind = PROGRAMS[language]
    for file in sorted((HERE / kind["folder"]).glob("*" + kind["ending"])):
        if file.stem in SHARED:
            continue
        # A compiled program is given the name of the file; an interpreter is given the file.
        name = file.stem if language in ("go", "java", "rust") else str(file)
        yield f"{language}/{file.stem}", [*kind["command"], name], "ide(" in file.read_text(encoding="utf-8")


def is_picked(name, picked):
    return not picked or any(part in name for part in picked)


class Program:
    """A running program and the lines that it has printed, each with its words."""

    def __init__(self, name, command, mode, cluster):
        self.name, self.lines, self.begun = name, queue.Queue(), False
        self.log = open(BUILT / f"{name.replace('/', '-')}-{mode}.log", "w+", encoding="utf-8")
        arguments = [mode, str(cluster.port), str(NODES), str(VICTIM)]
        self.process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n").split("\t"))

    def end(self, limit_s):
        """Asks it to end, and ends it after a while. Returns what was wrong with that, or nothing."""
        try:
            self.process.stdin.close()
            code = self.process.wait(limit_s)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            code = self.process.wait()
        self.reader.join(10)
        self.log.seek(0)
        text = self.log.read().strip()
        self.log.close()
        return f"ended with {code}: {text[-1500:]}" if code else None

    def taken(self):
        """The lines that have come since the last call."""
        lines = []
        while not self.lines.empty():
            lines.append(self.lines.get())
        return lines


def work(cluster, languages, picked):
    """Runs every program once, one after another. Returns all checks."""
    checks = []
    for language in languages:
        for name, command, _ in programs(language):
            if not is_picked(name, picked):
                continue
            program = Program(name, command, "work", cluster)
            wrong = program.end(PROGRAM_S_MAX)
            own = [Check(*line[1:]) for line in program.taken() if line[0] == "check" and len(line) == 7]
            if wrong or not own:
                own.append(Check(name, "", "", "program", "failed", wrong or "printed nothing"))
            for check in own:
                print(*check, sep="\t", flush=True)
            checks += own
    return checks


class Ride:
    """What one client did while a node died, and while it stood still."""

    def __init__(self, client, version, how):
        self.client, self.version, self.how = client, version, how
        self.answers, self.errors, self.wrong = [], [], []

    def add(self, start_ms, end_ms, result):
        if result == "ok":
            self.answers.append((start_ms, end_ms))
        elif result.startswith("wrong"):
            self.wrong.append(result)
        else:
            self.errors.append((end_ms, result))

    def is_back(self, since_ms):
        return sum(start >= since_ms for start, _ in self.answers[-2 * OPERATIONS_MIN :]) >= OPERATIONS_MIN

    def saw(self, begin_ms, end_ms):
        """Errors of that time, the longest time without an answer, and the errors' words."""
        ends = [end for _, end in self.answers]
        silent_ms = max((b - a for a, b in zip(ends, ends[1:]) if begin_ms < b <= end_ms), default=float("inf"))
        words = collections.Counter(first_words(text) for at, text in self.errors if begin_ms <= at < end_ms)
        return Saw(sum(words.values()), silent_ms / 1000, [w for w, _ in words.most_common(2)])


def first_words(text):
    """An error as a page can show it, without ports that differ from run to run."""
    text = re.sub(r"(127\.0\.0\.1|localhost)(/<unresolved>)?:\d+", "NODE", text)
    return " ".join(text.replace("|", "/").replace("`", "'").split())[:70]


class Riders:
    """The programs of a language, at work while faults happen to their cluster."""

    def __init__(self, cluster, named):
        self.programs = [Program(name, command, "ride", cluster) for name, command in named]
        self.rides = {}

    def read(self):
        for program in self.programs:
            for line in program.taken():
                if line[0] == "riders":
                    _, client, version, *ways = line
                    self.rides |= {(client, how): Ride(client, version, how) for how in ways}
                    program.begun = True
                elif line[0] == "op" and len(line) == 6:
                    _, client, how, start, end, result = line
                    self.rides[client, how].add(int(start), int(end), result)

    def away(self, since_ms=0):
        """Programs that have not begun, and clients that have not done enough since then."""
        self.read()
        unknown = [p.name for p in self.programs if not p.begun and p.process.poll() is None]
        return unknown + [", ".join(way) for way, r in self.rides.items() if not r.is_back(since_ms)]

    def until_all_back(self, since_ms, limit_s):
        deadline = time.monotonic() + limit_s
        while self.away(since_ms) and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.away(since_ms)


def kill(cluster):
    """The process ends at once, and `paritas dev` starts another."""
    cluster.until_replaced(cluster.kill(VICTIM))


def stop(cluster):
    """The process stands still, as a host that cannot be reached: its connections are open, and nothing answers."""
    pid = cluster.pids()[VICTIM]
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(STOPPED_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    until(cluster.is_whole, "all positions live")


def ride(cluster, languages, picked):
    """Lets both faults happen under the clients of each language in turn. Returns what each saw, and what went wrong."""
    seen, wrong = [], []
    for language in languages:
        riders = Riders(cluster, [(name, command) for name, command, rides in programs(language) if rides and is_picked(name, picked)])
        late = riders.until_all_back(0, PROGRAM_S_MAX)
        wrong += [f"{name} did not begin" for name in late]
        faults = []
        for fault in (kill, stop):
            begin_ms = time.time() * 1000
            fault(cluster)
            end_ms = time.time() * 1000
            print(f"# {language}: {fault.__name__}, all positions live after {(end_ms - begin_ms) / 1000:.1f} s", flush=True)
            wrong += [f"{name} did not go on within {BACK_S_MAX} s after {fault.__name__}" for name in riders.until_all_back(end_ms, BACK_S_MAX)]
            faults.append((begin_ms, time.time() * 1000))
        for program in riders.programs:
            trouble = program.end(30)
            wrong += [f"{program.name}: {trouble}"] if trouble else []
        riders.read()
        for one in riders.rides.values():
            saw = Seen(one.client, one.version, one.how, *(one.saw(*times) for times in faults))
            print("ride", *saw, sep="\t", flush=True)
            seen.append(saw)
            wrong += [f"{one.client}, {one.how}: {text}" for text in one.wrong]
    return seen, wrong


def read_missing():
    """What is known not to work: client, port and what, with a part of the error and the reason."""
    with open(HERE / "missing.csv", encoding="utf-8", newline="") as file:
        return {(row["client"], row["port"], row["what"]): row for row in csv.DictReader(file)}


def judge(checks, missing, everything):
    """What is wrong with the checks, given what is known to be missing."""
    wrong, tried = [], set()
    for check in checks:
        key = (check.client, check.port, check.what)
        tried.add(key)
        known = missing.get(key)
        if check.result == "ok" and known:
            wrong.append(f"{key} works now: take it from missing.csv, and run `make clients ARGS=--page`")
        elif check.result != "ok" and not known:
            wrong.append(f"{key} failed: {check.why}")
        elif check.result != "ok" and known["error"] not in check.why:
            wrong.append(f"{key} failed with another error than `{known['error']}`: {check.why}")
    if everything:
        wrong += [f"{key} is in missing.csv, but nothing tries it" for key in missing if key not in tried]
    return wrong


def works_table(checks, missing):
    """The table of what works. It has no figures, so two runs make the same."""
    rows = {}
    for check in checks:
        works, not_yet = rows.setdefault((check.client, check.version, check.port), ([], []))
        key = (check.client, check.port, check.what)
        if key in missing:
            why = missing[key]["why"]
            not_yet.append(check.what if why == f"no {check.what}" else f"{check.what} ({why})")
        else:
            works.append(check.what)
    lines = ["| client | port | what works | what does not, and why |", "| --- | --- | --- | --- |"]
    # The ports of a client beside each other, and clients as they came.
    clients = list(dict.fromkeys(client for client, _, _ in rows))
    for client, version, port in sorted(rows, key=lambda row: (clients.index(row[0]), row[2])):
        works, not_yet = rows[client, version, port]
        lines.append(f"| {client} {version} | {port} | {', '.join(works) or '–'} | {'; '.join(not_yet) or '–'} |")
    return "\n".join(lines)


def seen_table(seen):
    lines = [
        f"| client | how it is connected | killed: errors | longest without an answer | stands still for {STOPPED_S} s: errors | longest without an answer | what the errors say |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for saw in seen:
        words = "; ".join(dict.fromkeys(f"`{w}`" for w in saw.kill.words + saw.stop.words)) or "–"
        figures = " | ".join(f"{one.errors} | {one.silent_s:.1f} s" for one in (saw.kill, saw.stop))
        lines.append(f"| {saw.client} {saw.version} | {saw.how} | {figures} | {words} |")
    return "\n".join(lines)


def with_left_out(table, page, name):
    """The table, and the page's rows of clients that this run did not have."""
    client = lambda row: row.split("|")[1].rsplit(maxsplit=1)[0]  # noqa: E731
    had = {client(row) for row in table.splitlines()}
    return "\n".join([table, *(row for row in region(page, name).splitlines() if client(row) not in had)])


def region(page, name, text=None):
    """The text between the marks of a name; with `text`, the page with that instead."""
    begin, end = f"<!-- clients: {name} -->\n", "<!-- end of clients -->"
    head, rest = page.split(begin, 1)
    old, tail = rest.split(end, 1)
    return old.rstrip("\n") if text is None else f"{head}{begin}{text}\n{end}{tail}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="parts of names, as in python/redis or go/; all without them")
    parser.add_argument("--part", choices=["work", "ride", "all"], default="all", help="only what clients can do, or only what they see when a node dies")
    parser.add_argument("--page", action="store_true", help="write the tables into docs/clients.md")
    options = parser.parse_args()

    if not shutil.which(BINARY):
        parser.error(f"there is no {BINARY}: `make clients` builds it, and PARITAS_BIN names another")
    missing, wrong, checks, seen = read_missing(), [], [], []
    # Where no JDK can be had, for one, scripts/install-clients has said so. The page keeps the rows of languages left out.
    languages = [l for l in PROGRAMS if l == "python" or (BUILT / l / "ready").exists()]
    is_whole, has_all = not options.programs, len(languages) == len(PROGRAMS)
    if options.page and not (is_whole and options.part == "all"):
        parser.error("--page needs a run of everything")
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(pathlib.Path(directory), nodes=NODES)
        try:
            if options.part != "ride":
                checks = work(cluster, languages, options.programs)
                wrong += judge(checks, missing, is_whole and has_all)
            if options.part != "work":
                ridden = [l for l in languages if any(rides and is_picked(name, options.programs) for name, _, rides in programs(l))]
                seen, trouble = ride(cluster, ridden, options.programs)
                wrong += trouble
        finally:
            cluster.stop()

    page = PAGE.read_text(encoding="utf-8")
    works, rides = works_table(checks, missing), seen_table(seen)
    if not has_all:
        works, rides = with_left_out(works, page, "works"), with_left_out(rides, page, "seen")
    if options.page:
        page = region(region(page, "works", works), "seen", rides)
        PAGE.write_text(page, encoding="utf-8")
    elif is_whole and checks and not wrong and sorted(region(page, "works").splitlines()) != sorted(works.splitlines()):
        wrong.append("the table in docs/clients.md is not what this run found: run `make clients ARGS=--page`")
    for text in wrong:
        print(f"clients: {text}", file=sys.stderr)
    failed = sum(check.result != "ok" for check in checks)
    print(f"clients: {len(checks) - failed} of {len(checks)} checks ok, {len(missing)} known not to work, {len(seen)} rides; {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.chdir(ROOT)
    sys.exit(main())
