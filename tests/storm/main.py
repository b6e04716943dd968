#!/usr/bin/env python3
"""A storm: many clients use few keys while nodes are killed and paused; then a verdict is given (README.md).

    PARITAS_BIN=target/release/paritas target/venv/bin/python tests/storm/main.py --minutes 15

Ends with the line `N operations, L lost, U non-linearizable keys`, and fails unless L = U = 0 and every pipeline was answered."""

import argparse
import collections
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import engine
from dev_cluster import DevCluster
from faults import Faults
from host_cluster import HostCluster
from judge import Ledger, Verdict, build_checker, final_reads
from memory_watch import MemoryWatch, bytes_of
from standing import fill
from workload import ANSWERED_WITHIN_S, LARGE, any_node, client_process, keys_of_round, owners

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Most keys of the ledger, so that a long storm stays within its memory.
LEDGER_MAX = 200_000
# Schemes, and the number of parities that a write waits for.
SCHEMES = [("4+2", 2), ("4+2", 2), ("4+3", 2), ("2+1", 1), ("4+2/1", 2), ("3+3/2", 3)]
# One of this many clients is cluster-aware.
OWNERS_SHARE = 4
# What no process may log, whatever is done to it: it would be restarted, and the error would not be noticed.
NEVER_SAID = re.compile("panicked at|AddressSanitizer|HALTED a role")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--nodes", type=int, default=0, help="drawn from the seed if not given, 6 to 9")
    parser.add_argument("--scheme", help="as 4+2, or 4+2/1 with a log node; drawn for each act if not given")
    parser.add_argument("--ack-quorum", type=int, help="with --scheme; default: all parities")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rate", type=float, default=80, help="operations a second that each client tries")
    parser.add_argument("--round", type=float, default=20, help="seconds of faults before the histories are checked")
    parser.add_argument("--act", type=float, default=5, help="minutes of one cluster; then another is started")
    parser.add_argument("--memory", default="256mb")
    parser.add_argument("--large", type=float, default=0.01, help="part of the values that are longer than 64 KiB")
    parser.add_argument("--large-max", type=int, default=4_000_000, metavar="BYTES", help="about the most bytes of a value")
    parser.add_argument("--fill", type=int, default=0, metavar="BYTES", help="large values written before the faults, which must stay; needs --large")
    parser.add_argument("--hosts", action="store_true", help="each node in a network namespace of its own, with cut and bad links; needs root")
    parser.add_argument("--only", action="append", default=[], choices={**Faults.BLOWS, **Faults.OF_HOSTS}, help="only this fault; may be repeated")
    parser.add_argument("--until-bad", action="store_true", help="for broken builds: end at the first violation, which then counts as success")
    parser.add_argument("--keep", help="directory for failing histories and logs; a new temporary one if not given")
    options = parser.parse_args()
    if options.fill and not options.large:
        parser.error("--fill writes large values: give --large too, for example --large 0.05")
    return options


class Shape:
    """Scheme and nodes of the cluster of one act. With as many nodes as positions, the remaining nodes stand in for
    lost ones."""

    def __init__(self, options, act):
        draw = random.Random(f"{options.seed}/{act}/shape")
        self.scheme, self.quorum = draw.choice(SCHEMES)
        if options.scheme:
            self.scheme, self.quorum = options.scheme, options.ack_quorum
        self.data, self.parity, *logged = (int(number) for number in re.split("[+/]", self.scheme))
        self.quorum = self.quorum or self.parity
        self.positions = self.data + self.parity
        least = max(6, self.positions)
        self.nodes = options.nodes or draw.choice([least, draw.randint(least, 9)])
        # The last nodes are log nodes, one for each logged parity.
        self.log_nodes = logged[0] if logged else 0
        self.members = self.nodes - self.log_nodes
        self.has_spare = self.nodes > self.positions
        self.standing_bytes = options.fill
        # Small enough that the log wraps around, beside the units of the standing values. A log node keeps a third of
        # them at most, each unit takes three times its length, and parts may fill only part of the disk (P11.5).
        self.log_size = f"{64 + (options.fill * 2 >> 20)}mb"

    def __str__(self):
        return f"{self.nodes} nodes, {self.log_nodes} of them log nodes, scheme {self.scheme}, ack quorum {self.quorum}"


class Storm:
    """Clusters, with rounds of clients and faults on them. Each round has shared keys of its own."""

    def __init__(self, options, checker, directory):
        self.options, self.checker, self.directory = options, checker, directory
        self.draw = random.Random(options.seed)
        self.cluster = self.shape = None
        self.ledger = Ledger()
        self.began = time.monotonic()
        self.outcomes, self.blows = collections.Counter(), collections.Counter()
        self.lost = self.bad = self.number = self.broken = 0
        self.kept, self.asked, self.standing = [], [], []
        self.memory_part = 0.0

    def say(self, text):
        print(f"{time.monotonic() - self.began:7.2f} s  {text}", flush=True)

    def round(self, number, seconds):
        directory = self.directory / f"round-{number}"
        directory.mkdir()
        keys, prefix = keys_of_round(f"{number}"), f"w:{number}"
        room = max(0, LEDGER_MAX - self.ledger.acknowledged) // self.options.clients
        context = multiprocessing.get_context("fork")
        ending = context.Event()
        seed = f"{self.options.seed}/{number}"
        clients = [
            context.Process(
                target=client_process,
                args=(name, self.connect(name), seed, keys, self.standing, directory, ending, self.options.rate, prefix, room, self.addresses_for_engine(name)),
                daemon=True,
            )
            for name in range(self.options.clients)
        ]
        for client in clients:
            client.start()
        faults = Faults(self.cluster, seed, self.say, self.shape, self.options.only)
        try:
            faults.run(seconds)
        finally:
            ending.set()
            for client in clients:
                # A pipeline may still be written and read.
                client.join(2 * ANSWERED_WITHIN_S)
        assert all(client.exitcode == 0 for client in clients), f"a client has failed: {[c.exitcode for c in clients]}"
        self.blows.update(faults.counts)
        self.judge(number, directory, keys)

    def connect(self, name):
        return (owners if name % OWNERS_SHARE == 0 else any_node)(self.cluster.addresses())

    def addresses_for_engine(self, name):
        """The addresses for the client library, for every second client."""
        return self.cluster.addresses() if engine.is_there() and name % 2 else ()

    def judge(self, number, directory, keys):
        """Gives the round's history, with one more read of each key, to the checker."""
        history = directory / "history"
        addresses = self.cluster.addresses()
        with open(history, "w", encoding="utf-8") as whole:
            for part in sorted(directory.glob("history-*")):
                whole.write(part.read_text(encoding="utf-8"))
            final_reads(addresses, keys, self.draw, whole)
        self.count(history)
        self.ledger.take(sorted(directory.glob("ledger-*")))
        self.read_verdicts()
        self.asked.append(Verdict(self.checker, number, history))

    def read_verdicts(self):
        """Reads the verdicts on the histories so far. A bad history is kept."""
        while self.asked:
            verdict = self.asked.pop(0)
            said = verdict.read()
            self.bad += verdict.bad
            self.lost += verdict.lost
            if verdict.bad:
                self.kept.append(verdict.history)
                self.say(f"round {verdict.number}: {said}")
            else:
                shutil.rmtree(verdict.history.parent)

    def count(self, history):
        with open(history, encoding="utf-8") as lines:
            for line in lines:
                result = line.split()[6]
                self.outcomes["unknown" if result == "-" else result[1:] if result[0] == "!" else "answered"] += 1

    def run(self):
        deadline = time.monotonic() + self.options.minutes * 60
        act = 0
        while time.monotonic() < deadline and not (self.options.until_bad and self.bad):
            act += 1
            self.shape = Shape(self.options, act)
            self.say(f"act {act}: {self.shape}")
            directory = self.directory / f"act-{act}"
            directory.mkdir()
            kind = HostCluster if self.options.hosts else DevCluster
            self.cluster = kind(directory, self.shape, self.options.memory)
            before = self.bad + self.ledger.lost + self.broken
            watch = None
            try:
                watch = MemoryWatch(self.memory_pids, bytes_of(self.options.memory))
                watch.start()
                self.standing = fill(self.cluster.addresses(), f"s:{act}", self.options.fill, self.say)
                self.ledger.take_standing(self.standing)
                self.rounds(min(deadline, time.monotonic() + self.options.act * 60))
                self.check_memory(watch)
            finally:
                self.cluster.stop()
                self.read_logs(directory)
            if self.bad + self.ledger.lost + self.broken == before:
                shutil.rmtree(directory)

    def memory_pids(self):
        """The running processes of nodes with memory."""
        return [pid for node, pid in self.cluster.node_processes().items() if node < self.shape.members]

    def check_memory(self, watch):
        part, allowed = watch.stop()
        self.memory_part = max(self.memory_part, part)
        # AddressSanitizer keeps freed memory, and a shadow of all memory.
        if not allowed and "ASAN_OPTIONS" not in os.environ:
            self.broken += 1
            self.say(f"a node had {part:.3f} of its memory resident")

    def read_logs(self, directory):
        # Parity logs are no text, and gigabytes.
        logs = (path for path in directory.rglob("*log*") if path.is_file() and path.suffix != ".paritas")
        for log in logs:
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
                if NEVER_SAID.search(line):
                    self.broken += 1
                    self.say(f"{log}: {line}")

    def rounds(self, deadline):
        """Runs the rounds of one cluster."""
        while (left := deadline - time.monotonic()) > 0 and not (self.options.until_bad and self.bad):
            self.number += 1
            self.round(self.number, min(left, self.options.round))
            if self.options.until_bad:
                self.read_verdicts()
        self.read_verdicts()
        if self.options.until_bad and self.bad:
            # A broken cluster may not answer the remaining commands.
            return
        for key in self.ledger.compare(self.cluster.addresses(), self.draw)[:20]:
            self.say(f"lost: {key}")

    def verdict(self):
        outcomes = ", ".join(f"{count} {name}" for name, count in self.outcomes.most_common())
        self.say(f"shared keys: {outcomes}")
        self.say(
            f"ledger: {self.ledger.acknowledged} written once and acknowledged, {self.ledger.unknown} unknown, "
            f"{self.ledger.refused} refused; {self.ledger.read} reads of these keys during the faults"
        )
        self.say("client library: " + (", ".join(f"{count} {name}" for name, count in sorted(self.ledger.engine.items())) or "not built"))
        if self.ledger.unanswered:
            self.broken += 1
            self.say(f"{self.ledger.unanswered} pipelines were not answered within {ANSWERED_WITHIN_S:g} s")
        self.say("faults: " + ", ".join(f"{count} {name}" for name, count in sorted(self.blows.items())))
        self.say(f"memory: at most {self.memory_part:.3f} of a node's limit resident, beside an empty process")
        for history in self.kept:
            self.say(f"history kept: {history}")
        operations = sum(self.outcomes.values()) + self.ledger.operations
        lost = self.lost + self.ledger.lost
        print(f"{operations} operations, {lost} lost, {self.bad} non-linearizable keys", flush=True)
        is_linearizable = lost == 0 and self.bad == 0
        # A broken build is caught by what clients see.
        return not is_linearizable if self.options.until_bad else is_linearizable and self.broken == 0


def main():
    options = arguments()
    LARGE.update(part=options.large, bytes_max=options.large_max)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    print(
        f"storm: SEED={options.seed} COMMIT={commit.stdout.strip() or 'unknown'} "
        f"{options.clients} clients, {options.minutes:g} minutes"
        + (", a network namespace for each node" if options.hosts else ""),
        flush=True,
    )
    directory = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="storm-"))
    directory.mkdir(parents=True, exist_ok=True)
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    checker = build_checker(target)
    storm = Storm(options, checker, directory)
    well = False
    try:
        storm.run()
        well = storm.verdict()
        if options.until_bad:
            print("storm: the broken build " + ("was caught" if well else "was NOT caught"))
    finally:
        if well:
            shutil.rmtree(directory)
        else:
            print(f"storm: failed; histories and logs are in {directory}", file=sys.stderr)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
