#!/usr/bin/env python3
"""CPU-µs of server processes per EVALSHA of compare-and-delete, against Valkey, and per transaction of ten SETs against MSET
of ten: `target/venv/bin/python scripts/bench/scripts.py`. It wants `make release` (or PARITAS_BIN) and
`scripts/install-test-tools`.

Its own client, of which no time is counted, has 50 connections to the owner of one hash slot. Each sends its commands in one
write, and all of them before the first reply is read."""

import hashlib
import re
import socket
import statistics

import systems

CONNECTIONS = 50
OPERATIONS = 40_000
RUNS = 5
TEN = 10
COMPARE_AND_DELETE = b"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
SHA = hashlib.sha1(COMPARE_AND_DELETE).hexdigest()
MINE = "0123456789abcdef0123456789abcdef"


def request(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def key(n):
    return f"{{a}}:{n:016}"


class Clients:
    """Connections to the owner of the slot of all keys."""

    def __init__(self, system):
        self.waits = isinstance(system, systems.Redis) and system.replicas > 0
        self.sockets = [self.connect(system.port)]
        # A node of the strict port names the owner.
        moved = re.match(rb"-MOVED \d+ [\d.]+:(\d+)", self.ask(request("GET", key(0))))
        port = int(moved.group(1)) if moved else system.port
        self.sockets = [self.connect(port) for _ in range(CONNECTIONS)]
        self.ask(request("SCRIPT", "LOAD", COMPARE_AND_DELETE))

    @staticmethod
    def connect(port):
        connection = socket.create_connection(("127.0.0.1", port), timeout=systems.TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ask(self, bytes_):
        self.sockets[0].sendall(bytes_)
        return self.sockets[0].recv(1 << 20)

    def run(self, commands, reply, pipeline):
        """Sends all commands, each of which must get this reply."""
        wait, waited = (request("WAIT", 2, 0), b":2\r\n") if self.waits else (b"", b"")
        batches = [commands[at : at + pipeline] for at in range(0, len(commands), pipeline)]
        while batches:
            now, batches = batches[:CONNECTIONS], batches[CONNECTIONS:]
            for connection, batch in zip(self.sockets, now):
                connection.sendall(b"".join(batch) + wait)
            for connection, batch in zip(self.sockets, now):
                expected, got = reply * len(batch) + waited, b""
                while len(got) < len(expected) and not got.startswith(b"-"):
                    got += connection.recv(1 << 20)
                if got != expected:
                    raise SystemExit(f"bench: {got[:200]} instead of {expected[:200]}")


def compare(title, contenders, pipeline):
    """A row of the table. Contenders: system, clients, what is sent before and not counted, commands, their reply."""
    figures = [[] for _ in contenders]
    for _ in range(RUNS):
        for (system, clients, before, commands, reply), each in zip(contenders, figures):
            clients.run(before, b"+OK\r\n", 16)
            start_us = system.cpu_us()
            clients.run(commands, reply, pipeline)
            each.append((system.cpu_us() - start_us) / len(commands))
    medians = [statistics.median(each) for each in figures]
    cells = [f"{median:.2f} ({min(each):.2f}-{max(each):.2f})" for median, each in zip(medians, figures)]
    print(f"| {title}, pipeline {pipeline} | {' | '.join(cells)} | {medians[0] / medians[1]:.2f} |", flush=True)


def main():
    sets = [request("SET", key(n), MINE) for n in range(OPERATIONS)]
    mine = [request("EVALSHA", SHA, 1, key(n), MINE) for n in range(OPERATIONS)]
    others = [request("EVALSHA", SHA, 1, key(n), "x") for n in range(OPERATIONS)]

    def tens(value):
        return [[(key(n + i), f"{n + i:016}{value}") for i in range(TEN)] for n in range(0, OPERATIONS, TEN)]

    def transactions(value):
        each = [b"".join(request("SET", *pair) for pair in ten) for ten in tens(value)]
        return [request("MULTI") + sets + request("EXEC") for sets in each]

    transacted = b"+OK\r\n" + b"+QUEUED\r\n" * TEN + b"*10\r\n" + b"+OK\r\n" * TEN
    msets = [request("MSET", *[word for pair in ten for word in pair]) for ten in tens("m" * 16)]
    print("| operation | paritas | valkey | ratio |\n| --- | --- | --- | --- |")
    for ours, theirs, name in (
        (systems.ours("1+0"), systems.valkey(), "one process"),
        (systems.ours("4+2"), systems.valkey(2), "`4+2`, and two replicas with WAIT 2"),
    ):
        with ours, theirs:
            both = [(system, Clients(system)) for system in (ours, theirs)]
            for pipeline in (1, 16):
                rows = [(system, clients, sets, others, b":0\r\n") for system, clients in both]
                compare(f"EVALSHA, nothing is deleted, {name}", rows, pipeline)
                rows = [(system, clients, sets, mine, b":1\r\n") for system, clients in both]
                compare(f"EVALSHA that deletes, {name}", rows, pipeline)
            if ours.nodes > 1:
                clients = both[0][1]
                print("\n| operation | MULTI, ten SETs, EXEC | MSET of ten | ratio |\n| --- | --- | --- | --- |")
                # Values change each time: a write that changes nothing would be cheaper.
                two = [
                    (ours, clients, [], transactions("t" * 16), transacted),
                    (ours, clients, [], msets, b"+OK\r\n"),
                ]
                for pipeline in (1, 16):
                    compare(f"ten keys of a slot, {name.split(',')[0]}", two, pipeline)


if __name__ == "__main__":
    main()
