"""The longest turn of an event loop, in CPU time, for commands whose work their size does not bound, or that are large.

python3 scripts/bench/costly.py [--keys 200000] [--only KEYS]; PARITAS_BIN names the binary. Counts with turns.c.
Results: docs/benchmarks.md, "Longest turns".
No command of a client should make a turn of more than 60 ms of CPU (docs/protocol-control.md, P10.2b)."""

import argparse
import contextlib
import os
import pathlib
import socket
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests"))
from beside_large import Turns, request  # noqa: E402
from conftest import Cluster, until  # noqa: E402

END = b"-end-of-the-case-"
MIB = 1 << 20


class Case:
    """Commands for one node, sent at once, and the first bytes of their reply."""

    def __init__(self, name, *commands, times=1):
        self.name, self.text = name, b"".join(request(*command) for command in commands) * times


def many(name, count, key=b"key:%d", *more):
    return [name, *(word for n in range(count) for word in ([key % n if b"%" in key else key] + list(more)))]


EXPLODES = b"string.find(('a'):rep(24), ('a?'):rep(24) .. ('a'):rep(24))"
LIBRARY = b"#!lua name=costly\nredis.register_function('explodes', function() return " + EXPLODES + b" end)\n"
# Functions that are to be compiled.
FILLING = b"".join(b"local function f%d(a, b) return a .. b end\n" % n for n in range(150))
ENDLESS = b"#!lua name=endless\nwhile true do end"


def scripts():
    """The first script of a node makes its sandbox, and the first after SCRIPT FLUSH makes another."""
    at_each = [b"key:%d" % n for n in range(48)]
    evals = [[b"EVAL", b"return " + EXPLODES, b"1", key] for key in at_each]
    for when in ("the first", "the second"):
        yield Case(f"EVAL of an exploding string.find, {when} at each node", *evals)
    yield Case("EVAL of an exploding string.find, the first after SCRIPT FLUSH", [b"SCRIPT", b"FLUSH"], *evals)
    yield Case("EVAL of an exploding string.find without a key, 24 times", [b"EVAL", b"return " + EXPLODES, b"0"], times=24)
    yield Case("EVAL that has no end, 24 times", [b"EVAL", b"while true do end", b"1", b"key:7"], times=24)
    yield Case("EVAL that makes 16 MiB, 24 times", [b"EVAL", b"return #('x'):rep(16000000)", b"1", b"key:7"], times=24)
    yield Case("EVAL of 24 sources of 100 KiB", *([b"EVAL", b"return '%d%s'" % (n, b"x" * 100_000), b"0"] for n in range(24)))
    load = [b"FUNCTION", b"LOAD", b"REPLACE"]
    calls = [[b"FCALL", b"explodes", b"1", key] for key in at_each]
    yield Case("FUNCTION LOAD, FCALL of an exploding string.find, 48 keys", [*load, LIBRARY], *calls)
    yield Case("FUNCTION LOAD of many functions, 24 times", [*load, LIBRARY + FILLING], times=24)
    yield Case("FUNCTION LOAD of a library that has no end, 24 times", [b"FUNCTION", b"LOAD", ENDLESS], times=24)
    yield Case("FUNCTION LIST, long pattern, 24 times", [b"FUNCTION", b"LIST", b"LIBRARYNAME", b"*a" * 1000], times=24)
    about = ([b"DUMP"], [b"STATS"], [b"LIST", b"WITHCODE"])
    yield Case("FUNCTION DUMP, STATS, LIST WITHCODE, 200 times", *([b"FUNCTION", *words] for words in about), times=200)
    yield Case("FUNCTION FLUSH", [b"FUNCTION", b"FLUSH"])


def strings():
    texts = b"abcd" * 2048, b"dbca" * 2048
    values = [[b"SET", b"{lcs}%d" % n, text] for n, text in enumerate(texts)]
    yield Case("LCS of two values of 8 KiB, 24 times", *values, *[[b"LCS", b"{lcs}0", b"{lcs}1", b"IDX"]] * 24)
    values = [[b"SET", b"{lcs}%d" % n, text] for n, text in enumerate((b"abcd" * (MIB // 4), b"dcba" * 16))]
    yield Case("LCS of 1 MiB with 64 bytes, 24 times", *values, *[[b"LCS", b"{lcs}0", b"{lcs}1"]] * 24)
    values = [[b"SETRANGE", b"{bits}%d" % n, b"%d" % (2 * MIB - 1), b"x"] for n in range(2)]
    join = [b"BITOP", b"XOR", b"{bits}2", b"{bits}0", b"{bits}1"]
    yield Case("BITOP XOR of two values of 2 MiB, 24 times", *values, *[join] * 24)
    yield Case("BITCOUNT, BITPOS of 2 MiB, 24 times", [b"BITCOUNT", b"{bits}0"], [b"BITPOS", b"{bits}0", b"1"], times=24)
    gets = [word for n in range(4096) for word in (b"GET", b"u63", b"%d" % (4096 * n))]
    yield Case("BITFIELD of 4,096 operations, 24 times", [b"BITFIELD", b"{bits}0", *gets], times=24)
    for name, key in (("MSETEX of 130,000 pairs", b"msetex:%d"), ("MSETEX of 130,000 pairs of a slot", b"{msetex}%d")):
        yield Case(name, [b"MSETEX", b"130000", *many(b"", 130_000, key, b"value")[1:], b"EX", b"1000"])


def cases():
    yield from scripts()
    yield from strings()
    a = b"a" * 4000
    million, most = 1_000_000, 262_143
    yield Case("KEYS, class of 40,000 bytes, 24 times", [b"KEYS", b"*[" + b"b" * 40_000 + b"]"], times=24)
    yield Case("KEYS *a…b", [b"KEYS", b"*" + a + b"b"])
    yield Case("KEYS *a…b*, 24 times", [b"KEYS", b"*" + a + b"b*"], times=24)
    yield Case("KEYS of 60,000 bytes of ranges, 24 times", [b"KEYS", b"*" + b"[!-z]" * 8000 + b"*"], times=24)
    yield Case("KEYS *", [b"KEYS", b"*"])
    yield Case("KEYS without a match, 100 times", [b"KEYS", b"none"], times=100)
    yield Case("SCAN COUNT 1000000000", [b"SCAN", b"0", b"COUNT", b"1000000000"])
    yield Case("SCAN MATCH COUNT 1000000000, 500 times", [b"SCAN", b"0", b"COUNT", b"1000000000", b"MATCH", b"none"], times=500)
    yield Case("CLUSTER COUNTKEYSINSLOT, 50 times", [b"CLUSTER", b"COUNTKEYSINSLOT", b"7"], times=50)
    yield Case("DBSIZE, 1,000 times", [b"DBSIZE"], times=1000)
    yield Case("RANDOMKEY, 1,000 times", [b"RANDOMKEY"], times=1000)
    yield Case("INFO, 1,000 times", [b"INFO"], times=1000)
    yield Case("INFO everything, 1,000 times", [b"INFO", b"everything"], times=1000)
    yield Case("CLIENT LIST of 800 clients, 200 times", [b"CLIENT", b"LIST"], times=200)
    yield Case("CLIENT LIST ID, 1,000,000 ids", [b"CLIENT", b"LIST", b"ID", *(b"%d" % n for n in range(9 * million, 10 * million))])
    yield Case("COMMAND, 500 times", [b"COMMAND"], times=500)
    yield Case("COMMAND DOCS, 500 times", [b"COMMAND", b"DOCS"], times=500)
    yield Case("COMMAND INFO client, 1,000,000 names", [b"COMMAND", b"INFO", *[b"client"] * million])
    yield Case("COMMAND GETKEYS of 1,000,000", [b"COMMAND", b"GETKEYS", *many(b"MGET", million)])
    yield Case("COMMAND LIST, long pattern", [b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", b"*a" * 30_000], times=24)
    yield Case("CLUSTER NODES, SLOTS, SHARDS, 500 times", *([b"CLUSTER", what] for what in (b"NODES", b"SLOTS", b"SHARDS")), times=500)
    yield Case("CONFIG GET of 500,000 patterns", [b"CONFIG", b"GET", *[b"a*b*c"] * (million // 2)])
    yield Case("EXISTS of 1,000,000 keys", many(b"EXISTS", million))
    yield Case("EXISTS of 262,143 keys", many(b"EXISTS", most))
    yield Case("EXISTS of one key, 1,000,000 times", many(b"EXISTS", million, b"key:7"))
    yield Case("EXISTS of one key, 65,535 times", many(b"EXISTS", 65_535, b"key:7"))
    yield Case("MGET of 262,143 keys", many(b"MGET", most))
    yield Case("MGET of 65,535 keys of a slot", many(b"MGET", 65_535, b"{key:7}%d"))
    yield Case("EXISTS of 7,800 keys of 8 KiB (64 MiB)", many(b"EXISTS", 7_800, b"%08192d"))
    yield Case("EXISTS of 4,000 keys of 8 KiB (32 MiB)", many(b"EXISTS", 4_000, b"%08192d"))
    yield Case("MSET of 1,000 pairs of 60,000 bytes", many(b"MSET", 1_000, b"mset:%d", b"v" * 60_000))
    yield Case("MSET of 500 pairs of 60,000 bytes", many(b"MSET", 500, b"mset:%d", b"v" * 60_000))
    yield Case("MSET of 131,071 pairs", many(b"MSET", most // 2, b"mset:%d", b"value"))
    yield Case("MSET of 500,000 pairs of a slot", many(b"MSET", million // 2, b"{mset}%d", b"value"))
    yield Case("DEL of 262,143 keys", many(b"DEL", most, b"mset:%d"))
    yield Case("SETRANGE at 512 MiB - 1", [b"SETRANGE", b"long", b"%d" % (512 * MIB - 1), b"x"])
    yield Case("APPEND to it, STRLEN, SETRANGE at 7", [b"SETRANGE", b"long", b"7", b"x"], [b"STRLEN", b"long"])
    yield Case("GETRANGE of 64 KiB, 1,000 times", [b"GETRANGE", b"long", b"0", b"65535"], times=1000)
    yield Case("GETRANGE 0 -1 (512 MiB)", [b"GETRANGE", b"long", b"0", b"-1"])
    yield Case("COPY and RENAME of it", [b"COPY", b"long", b"{long}2"], [b"RENAME", b"{long}2", b"{long}3"])
    yield Case("DEL of it", [b"DEL", b"long", b"{long}2", b"{long}3"])
    yield Case("MEMORY USAGE, OBJECT FREQ, TYPE, 1,000 times", [b"MEMORY", b"USAGE", b"key:7"], [b"OBJECT", b"ENCODING", b"key:7"], times=1000)
    yield Case("PARITAS.STATUS, 200 times", [b"PARITAS.STATUS"], times=200)
    yield Case("FLUSHALL", [b"FLUSHALL"])


def run(port, case):
    """Returns the number of bytes of the replies, and the first of them."""
    got, head, tail = 0, b"", b""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as stream:
        text = memoryview(case.text + request(b"ECHO", END))
        stream.setblocking(False)
        deadline = time.monotonic() + 120
        while not tail.endswith(END + b"\r\n"):
            if time.monotonic() > deadline:
                return got, head + b" (not answered)"
            moved = False
            with contextlib.suppress(BlockingIOError):
                if text:
                    text = text[stream.send(text[:MIB]) :]
                    moved = True
            with contextlib.suppress(BlockingIOError):
                part = stream.recv(MIB)
                if not part:
                    return got, head + b" (closed)"
                got, head, tail = got + len(part), (head + part)[:40], (tail + part)[-100:]
                moved = True
            if not moved:
                time.sleep(0.001)
    return got, head


def load(cluster, keys):
    client = cluster.client()
    for first in range(0, keys, 5_000):
        client.mset({f"key:{n}": "v" * 20 for n in range(first, min(first + 5_000, keys))})
    for n in range(64):
        client.set("a" * 8_000 + str(n), "v")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        turns = Turns(directory)
        cluster = Cluster(pathlib.Path(directory), memory="512mb", binary=os.environ["PARITAS_BIN"])
        others = []
        try:
            until(cluster.is_whole, "a whole cluster")
            load(cluster, asked.keys)
            others = [cluster.socket() for _ in range(800)]
            pids = cluster.pids()
            os.environ.pop("LD_PRELOAD", None)
            print("| command | longest turn, ms of CPU | bytes of reply | its beginning |\n|---|---|---|---|")
            for case in cases():
                if asked.only.lower() not in case.name.lower():
                    continue
                turns.reset()
                try:
                    got, head = run(cluster.port, case)
                except OSError as error:
                    got, head = 0, str(error).encode()
                    until(cluster.is_whole, "a whole cluster")
                print(f"| {case.name} | {turns.longest_ms():.1f} | {got} | `{head[:40]!r}` |", flush=True)
            print("the nodes are the same processes:", cluster.pids() == pids, cluster.status()["lists"][0]["epoch"])
        finally:
            for other in others:
                other.close()
            cluster.stop()


if __name__ == "__main__":
    main()
