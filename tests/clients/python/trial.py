"""What the programs of this folder share: a line for each thing that was tried, and writing and reading while a node dies."""

import itertools
import sys
import threading
import time
import uuid

MODE, BASE, NODES, VICTIM = sys.argv[1], *map(int, sys.argv[2:5])
# Keys of one run differ from those of all others.
RUN = uuid.uuid4().hex[:8]
OFFSETS = {"any-key": 0, "cluster": 1_000, "memcached": 2_000}
# Longest wait for anything, and keys and pause of a client while a node dies.
TIMEOUT_S = 10
KEYS = 40
PAUSE_S = 0.005
LINES = threading.Lock()


def port(kind, node=0):
    return BASE + OFFSETS[kind] + node


def key(name):
    """A key that no other check has."""
    return f"{RUN}:{Trial.checks}:{name}"


def until(condition):
    """Polls until the condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s"
        time.sleep(0.01)


def equal(found, wanted):
    assert found == wanted, f"{found!r} instead of {wanted!r}"


def line(*words):
    with LINES:
        # At once, so that lines of several processes do not mix.
        sys.stdout.write("\t".join(" ".join(str(word).split())[:400] for word in words) + "\n")
        sys.stdout.flush()


class Trial:
    """Of one client: `check` prints whether something works, `ride` what happens while a node dies."""

    checks = 0

    def __init__(self, client, version):
        self.client, self.version = client, version

    def check(self, kind, what, do):
        if MODE != "work":
            return
        Trial.checks += 1
        try:
            do()
            line("check", self.client, self.version, kind, what, "ok", "")
        except Exception as error:  # pylint: disable=broad-except
            line("check", self.client, self.version, kind, what, "failed", f"{type(error).__name__}: {error}")

    def ride(self, ways):
        """`ways`: how a client is connected, and a function that connects it and returns its `put` and `get`."""
        if MODE != "ride":
            return
        ended = threading.Event()
        line("riders", self.client, self.version, *ways)
        threads = [threading.Thread(target=self._ride, args=(how, connect, ended), daemon=True) for how, connect in ways.items()]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        ended.set()
        for thread in threads:
            thread.join(TIMEOUT_S)

    def _ride(self, how, connect, ended):
        put, get = connect()
        # What a key may hold, by its number. A key whose write failed is not used again: the write may still come.
        holds, names = {}, {}
        for count in itertools.count():
            if ended.wait(PAUSE_S):
                return
            number = count % KEYS
            name = names.setdefault(number, key(f"{self.client} {how} {count}".replace(" ", "-")))
            if number in holds:
                found = self._one(how, lambda: get(name))
                if found is not None and found[0] != holds[number]:
                    line("op", self.client, how, 0, 0, f"wrong: {name} has {found[0]!r} instead of {holds[number]!r}")
            if self._one(how, lambda: put(name, f"v{count}")):
                holds[number] = f"v{count}"
            else:
                holds.pop(number, None)
                names.pop(number)

    def _one(self, how, do):
        """Prints what one operation did. Returns its result in a tuple, or None after an error."""
        start = time.time()
        try:
            result, said = (do(),), "ok"
        except Exception as error:  # pylint: disable=broad-except
            result, said = None, f"{type(error).__name__}: {error}"
        line("op", self.client, how, int(start * 1000), int(time.time() * 1000), said)
        return result
