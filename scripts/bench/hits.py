"""Hit ratios of a full cache on a Zipf trace, beside Valkey under the same policy: `python scripts/bench/hits.py`.

Each system may use the same part of what it takes, by its own count, to hold everything. A request is a GET, and a SET if
that found nothing; the second half of the requests is counted. "exact" is a perfect LRU, computed, of as many objects as
the system held at the end. Valkey's LRU clock counts seconds, which a run of a few seconds makes coarse: with
`--pause MS` a run waits so long after every thousand requests, so that it lasts longer.
"""

import argparse
import collections
import random
import socket
import time

import systems

BATCH = 100


class Client:
    """One connection that sends batches and reads what comes back."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=systems.PATIENCE)
        self.input = self.socket.makefile("rb", buffering=1 << 20)

    def ask(self, commands):
        parts = []
        for command in commands:
            parts.append(b"*%d\r\n" % len(command))
            parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in command]
        self.socket.sendall(b"".join(parts))
        return [self.reply() for _ in commands]

    def reply(self):
        line = self.input.readline()
        if line[:1] == b"$":
            length = int(line[1:])
            return None if length < 0 else self.input.read(length + 2)[:-2]
        if line[:1] == b"-":
            raise SystemExit(f"hits: {line.decode().strip()}")
        return line


def key(number):
    return b"key:%020d" % number


def fill(client, keys, value):
    for start in range(0, keys, BATCH):
        client.ask([(b"SET", key(n), value) for n in range(start, min(start + BATCH, keys))])


def run(client, trace, value, pause):
    """The part of the second half of the requests that found something."""
    hits = 0
    for start in range(0, len(trace), BATCH):
        numbers = list(dict.fromkeys(trace[start : start + BATCH]))
        found = client.ask([(b"GET", key(n)) for n in trace[start : start + BATCH]])
        known = dict(zip(trace[start : start + BATCH], found))
        missing = [n for n in numbers if known[n] is None]
        if missing:
            client.ask([(b"SET", key(n), value) for n in missing])
        if start >= len(trace) // 2:
            hits += sum(reply is not None for reply in found)
        if pause and start % 1000 == 0:
            time.sleep(pause / 1000)
    return hits / (len(trace) - len(trace) // 2)


def exact(trace, objects):
    """A perfect LRU of so many objects."""
    held, hits = collections.OrderedDict(), 0
    for at, number in enumerate(trace):
        if number in held:
            held.move_to_end(number)
            hits += at >= len(trace) // 2
        else:
            held[number] = True
            if len(held) > objects:
                held.popitem(last=False)
    return hits / (len(trace) - len(trace) // 2)


def ours(policy, memory):
    return systems.Paritas("1+0", 1, str(memory), policy)


def footprint(start, keys, value):
    with start() as system:
        fill(Client(system.port), keys, value)
        return int(systems.info(system.port, "used_memory"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--requests", type=int, default=600_000)
    parser.add_argument("--value", type=int, default=1000)
    parser.add_argument("--pause", type=int, default=0, metavar="MS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", type=float, nargs="+", default=[0.2, 0.5])
    parser.add_argument("--policies", nargs="+", default=["allkeys-lru", "allkeys-lfu", "allkeys-random"])
    arguments = parser.parse_args()
    value = b"v" * arguments.value
    weights, total = [], 0.0
    for rank in range(arguments.keys):
        total += 1 / (rank + 1) ** 0.99
        weights.append(total)
    draw = random.Random(arguments.seed)
    trace = draw.choices(range(arguments.keys), cum_weights=weights, k=arguments.requests)
    full_ours = footprint(lambda: ours("noeviction", 1 << 30), arguments.keys, value)
    full_valkey = footprint(systems.valkey, arguments.keys, value)
    print(f"everything: ours {full_ours / 2**20:.1f} MiB, valkey {full_valkey / 2**20:.1f} MiB; Zipf 0.99, "
          f"{arguments.keys} keys of {arguments.value} B, {arguments.requests} requests", flush=True)
    print("| policy | memory, part of everything | ours | valkey | ours / valkey | exact, ours | exact, valkey |")
    print("|---|---|---|---|---|---|---|")
    for policy in arguments.policies:
        for part in arguments.parts:
            with ours(policy, int(full_ours * part)) as system:
                client = Client(system.port)
                mine = run(client, trace, value, arguments.pause)
                mine_held = int(client.ask([(b"DBSIZE",)])[0][1:])
            with systems.valkey() as system:
                client = Client(system.port)
                client.ask([(b"CONFIG", b"SET", b"maxmemory", b"%d" % int(full_valkey * part))])
                client.ask([(b"CONFIG", b"SET", b"maxmemory-policy", policy.encode())])
                theirs = run(client, trace, value, arguments.pause)
                held = int(client.ask([(b"DBSIZE",)])[0][1:])
            print(f"| {policy} | {part} | {mine:.4f} ({mine_held}) | {theirs:.4f} ({held}) | {mine / theirs:.4f} | "
                  f"{exact(trace, mine_held):.4f} | {exact(trace, held):.4f} |", flush=True)


if __name__ == "__main__":
    main()
