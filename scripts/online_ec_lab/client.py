"""One client of the lab, in a process of its own on its host: writes or reads values of one length at keys drawn evenly, for
a time, with a number of operations under way. It prints what it has measured as JSON.

    python3 -m online_ec_lab.client '{"system": "memcached", "addresses": ["10.77.0.1:6379"], ...}'"""

import collections
import json
import os
import pathlib
import random
import selectors
import socket
import sys
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
# Bytes of a value that tell whose it is: a reply of another key would be seen.
MARK_BYTES = 16


def value_of(key, body):
    """The value of a key: its name, and bytes that all share."""
    return key.ljust(MARK_BYTES)[:MARK_BYTES] + body[MARK_BYTES:]


class Connection:
    """Requests in order, and their replies in the same order, without waiting."""

    def __init__(self, address, selector, parse):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.selector, self.parse = selector, parse
        self.out, self.input, self.waiting = collections.deque(), bytearray(), collections.deque()
        selector.register(self.socket, selectors.EVENT_READ, self)

    def ask(self, pieces, then):
        self.waiting.append(then)
        self.out.extend(memoryview(piece) for piece in pieces)
        self.write()

    def write(self):
        while self.out:
            try:
                sent = self.socket.sendmsg(list(self.out)[:64])
            except BlockingIOError:
                break
            while sent:
                if sent < len(self.out[0]):
                    self.out[0] = self.out[0][sent:]
                    break
                sent -= len(self.out.popleft())
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.out else 0)
        self.selector.modify(self.socket, wanted, self)

    def on_ready(self, events):
        if events & selectors.EVENT_WRITE:
            self.write()
        if events & selectors.EVENT_READ:
            try:
                fresh = self.socket.recv(1 << 18)
            except BlockingIOError:
                return
            if not fresh:
                raise SystemExit("client: a server has closed its connection")
            self.input += fresh
            while self.waiting and (found := self.parse(self.input)) is not None:
                reply, length = found
                del self.input[:length]
                self.waiting.popleft()(reply)


def memcached_reply(data):
    """(value or word, its length in the input), or None if it is not whole."""
    end = data.find(b"\r\n")
    if end < 0:
        return None
    line = bytes(data[:end])
    if line.startswith(b"VALUE "):
        length = end + 2 + int(line.split()[3]) + len(b"\r\nEND\r\n")
        return (bytes(data[end + 2 : length - 7]), length) if len(data) >= length else None
    return (None if line == b"END" else line), end + 2


def resp_reply(data):
    end = data.find(b"\r\n")
    if end < 0:
        return None
    line = bytes(data[:end])
    if line[:1] == b"$" and line != b"$-1":
        length = end + 2 + int(line[1:]) + 2
        return (bytes(data[end + 2 : length - 2]), length) if len(data) >= length else None
    return (None if line == b"$-1" else line), end + 2


class Stock:
    """A client of stock servers: each operation goes to the servers of its key, one after another or at once."""

    def __init__(self, job, parse):
        self.selector = selectors.DefaultSelector()
        self.links = []
        for address in job["addresses"]:
            try:
                self.links.append(Connection(address, self.selector, parse))
            except OSError:
                self.links.append(None)
        self.copies, self.is_sync = job.get("copies", 1), job.get("is_sync", False)
        self.ended = []

    def close(self):
        self.selector.close()

    def places(self, key):
        first = zlib.crc32(key)
        return [self.links[(first + copy) % len(self.links)] for copy in range(self.copies)]

    def turn(self):
        """What has ended since; waits until something has."""
        while not self.ended:
            ready = self.selector.select(TIMEOUT_S)
            if not ready:
                raise SystemExit("client: no server has answered")
            for chosen, events in ready:
                chosen.data.on_ready(events)
        ended, self.ended = self.ended, []
        return ended


class Memcached(Stock):
    def __init__(self, job):
        super().__init__(job, memcached_reply)

    def set(self, key, value):
        left = [place for place in self.places(key) if place]
        pieces = (b"set %s 0 0 %d\r\n" % (key, len(value)), value, b"\r\n")

        def on_stored(reply):
            if reply != b"STORED":
                raise SystemExit(f"client: SET was answered with {reply!r}")
            if self.is_sync and left:
                left.pop(0).ask(pieces, on_stored)
            else:
                under_way[0] -= 1
                if under_way[0] == 0:
                    self.ended.append((key, None))

        under_way = [1 if self.is_sync else len(left)]
        now, left = (left[:1], left[1:]) if self.is_sync else (left, [])
        for place in now:
            place.ask(pieces, on_stored)

    def get(self, key):
        place = next(place for place in self.places(key) if place)
        place.ask((b"get %s\r\n" % key,), lambda reply: self.ended.append((key, reply)))


class Valkey(Stock):
    """SET with WAIT 2, each operation in a connection's turn: WAIT holds what is behind it."""

    def __init__(self, job):
        window = job["window"]
        primaries = len(job["addresses"])
        super().__init__({**job, "addresses": [address for address in job["addresses"] for _ in range(window)]}, resp_reply)
        self.idle = [self.links[at * window : (at + 1) * window] for at in range(primaries)]

    def set(self, key, value):
        mine = self.idle[zlib.crc32(key) % len(self.idle)]
        link = mine.pop()

        def on_copied(reply):
            if reply != b":2":
                raise SystemExit(f"client: WAIT was answered with {reply!r}")
            mine.append(link)
            self.ended.append((key, None))

        link.ask((b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(key), key, len(value)), value, b"\r\n"), lambda _: None)
        link.ask((b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n",), on_copied)

    def get(self, key):
        mine = self.idle[zlib.crc32(key) % len(self.idle)]
        link = mine.pop()

        def on_read(reply):
            mine.append(link)
            self.ended.append((key, reply))

        link.ask((b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key),), on_read)


class Paritas:
    def __init__(self, job):
        sys.path.insert(0, str(ROOT / "python"))
        import paritas

        self.paritas = paritas
        ways = {"encode": job["encode"], "decode": job["decode"]}
        self.client = paritas.Client(job["addresses"], **ways, encode_bytes_min=job["encode_bytes_min"], deadline_ms=30_000)
        self.under_way = {}
        self.phases = collections.Counter()

    def close(self):
        self.client.close()

    def set(self, key, value):
        self.under_way[self.client.iset(key, value)] = key

    def get(self, key):
        self.under_way[self.client.iget(key)] = key

    def turn(self):
        done = self.paritas.wait_any(list(self.under_way), TIMEOUT_S)
        key = self.under_way.pop(done)
        value = done.wait()
        spent = done.phases
        self.phases.update(request=spent[0], coding=spent[1], wait=spent[2], coded=spent[3] or spent[4])
        return [(key, value)]


SYSTEMS = {"memcached": Memcached, "valkey": Valkey, "paritas": Paritas}


def link_bytes():
    """Bytes that this host has sent and got."""
    return [int(pathlib.Path(f"/sys/class/net/eth0/statistics/{way}_bytes").read_text()) for way in ("tx", "rx")]


def run(job):
    client, draw = SYSTEMS[job["system"]](job), random.Random(job["seed"])
    body = os.urandom(job["bytes"])
    keys = [b"%s:%d" % (job.get("prefix", "key").encode(), n) for n in range(job["keys"])]
    begun, under_way, done, missed, latencies = {}, 0, 0, 0, []
    todo = list(keys) if job.get("all") else None
    since, sent = time.monotonic(), link_bytes()
    until = since + job.get("seconds", 0)
    while True:
        while under_way < job["window"]:
            if todo is not None:
                if not todo:
                    break
                key = todo.pop()
            elif time.monotonic() >= until:
                break
            else:
                # One operation a key at a time: the order of two is not told.
                key = draw.choice(keys)
                if key in begun:
                    continue
            begun[key] = time.monotonic()
            under_way += 1
            if job["op"] == "set":
                client.set(key, value_of(key, body))
            else:
                client.get(key)
        if not under_way:
            break
        for key, value in client.turn():
            latencies.append(time.monotonic() - begun.pop(key))
            under_way -= 1
            done += 1
            if job["op"] == "get":
                if value is None:
                    missed += 1
                elif len(value) != job["bytes"] or value[:MARK_BYTES] != key.ljust(MARK_BYTES)[:MARK_BYTES]:
                    raise SystemExit(f"client: {key!r} has a value that was not written to it")
    took = time.monotonic() - since
    moved = [after - before for before, after in zip(sent, link_bytes())]
    latencies.sort()
    client.close()
    result = {"done": done, "missed": missed, "seconds": took, "sent": moved[0], "got": moved[1]}
    if done:
        result["median_ms"] = 1e3 * latencies[len(latencies) // 2]
        result["each_ms"] = 1e3 * took / done
    phases = getattr(client, "phases", None)
    if phases and done:
        result["phases_ms"] = {name: 1e3 * phases[name] / done for name in ("request", "coding", "wait")}
        result["coded"] = phases["coded"] / done
    return result


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
