"""Judges the files of a round: the history, by the checker, and the ledger, by comparison with the cluster."""

import collections
import pathlib
import re
import subprocess
import time

import redis

from workload import any_node, is_large, members, number_in

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 120.0


def build_checker(target):
    """Builds the checker. Porcupine comes from the Go module proxy. Needs Go 1.19 or newer; Debian's is enough."""
    checker = pathlib.Path(target).resolve() / "storm-checker"
    subprocess.run(["go", "build", "-o", str(checker), "."], cwd=HERE / "checker", check=True)
    return checker


def retry_until_answered(link_to, what):
    """Asks until there is an answer. No fault is active any more, but links may still have to be made."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return what(link_to())
        except (redis.RedisError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def final_reads(addresses, keys, draw, history):
    """Reads every shared key once more through every node, as operations of an additional client."""
    for key in keys:
        for address in addresses:
            connect = any_node([address])
            call = time.monotonic_ns()
            if key[0] == "g":
                reply = retry_until_answered(lambda: connect(draw, TIMEOUT_S), lambda link: link.execute_command("MGET", *members(key)))
                found = number_in(reply[0]) if len(set(reply)) == 1 else "torn"
            else:
                reply = retry_until_answered(lambda: connect(draw, TIMEOUT_S), lambda link: link.execute_command("GET", key))
                found = ("nil" if reply is None else "".join(reply.split()) or "corrupt") if key[0] == "c" else number_in(reply)
            print(key, 9999, "get", "-", call, time.monotonic_ns(), found, file=history)


class Ledger:
    """Keys that are written once. Acknowledged keys must exist as long as their cluster; unknown ones may exist."""

    def __init__(self):
        self.entries = []  # (key, number, what may be found: that number, nothing, or both), for the present cluster
        self.missed = set()  # keys that clients found missing
        # Counts of the client library.
        self.engine = collections.Counter()
        self.acknowledged = self.unknown = self.refused = self.operations = self.lost = self.read = self.unanswered = 0

    def take_standing(self, written):
        """Pairs of key and number that were acknowledged before the faults."""
        self.acknowledged += len(written)
        self.operations += len(written)
        self.entries.extend((key, str(number), {str(number)}) for key, number in written)

    def take(self, files):
        for file in files:
            for line in file.read_text(encoding="utf-8").splitlines():
                key, number, what = line.split()
                if key == "engine":
                    self.engine[what] += int(number)
                    continue
                self.operations += 1
                if what == "ok":
                    self.acknowledged += 1
                    self.entries.append((key, number, {number}))
                elif what == "unknown":
                    self.unknown += 1
                    self.entries.append((key, number, {number, "nil"}))
                elif what == "lost":
                    self.missed.add(key)
                elif what == "refused":
                    self.refused += 1
                    self.entries.append((key, number, {"nil"}))
                elif what == "read":
                    self.read += 1
                elif what == "unanswered":
                    self.unanswered += 1

    def compare(self, addresses, draw):
        """Reads all keys through random nodes, and clears the ledger. Returns the lost keys."""
        small = [entry for entry in self.entries if not is_large(int(entry[1]))]
        parts = [small[start : start + 200] for start in range(0, len(small), 200)]
        # Each large value is read alone, so that one reply with all of them is not held here.
        parts += [[entry] for entry in self.entries if is_large(int(entry[1]))]
        for part in parts:
            command = ["MGET"] if len(part) > 1 else ["GET"]
            command += [key for key, _, _ in part]
            found = retry_until_answered(
                lambda: any_node(addresses)(draw, TIMEOUT_S), lambda link: link.execute_command(*command)
            )
            for (key, _, allowed), value in zip(part, found if len(part) > 1 else [found]):
                if number_in(value) not in allowed:
                    self.missed.add(key)
        lost = sorted(self.missed)
        self.lost += len(lost)
        self.entries, self.missed = [], set()
        return lost

class Verdict:
    """The checker's verdict on a history. The checker runs while the storm goes on."""

    def __init__(self, checker, number, history):
        self.number, self.history = number, history
        self.process = subprocess.Popen(
            ["nice", str(checker), str(history)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.bad = self.lost = None

    def read(self):
        """Waits for the checker and returns its output."""
        said, _ = self.process.communicate()
        found = re.search(r"^\d+ keys, (\d+) non-linearizable, (\d+) lost$", said, re.MULTILINE)
        if self.process.returncode not in (0, 1) or not found:
            raise AssertionError(f"checker: {said}")
        self.bad, self.lost = int(found[1]), int(found[2])
        return said
