"""The project's own client, from its wheel."""

import paritas
from trial import NODES, VICTIM, Trial, equal, key, port

ALL = [f"127.0.0.1:{port('any-key', node)}" for node in range(NODES)]
LARGE = bytes(range(256)) * 4000


def strings():
    with paritas.Client(ALL) as c:
        c.set(key("a"), "1")
        equal(c.get(key("a")), b"1")
        equal(c.command("INCRBY", key("a"), 41), 42)
        equal(c.command("MGET", key("a"), key("none")), [b"42", None])
        equal(c.command("DEL", key("a")), 1)


def large_values():
    for decode in "server", "client", "auto":
        with paritas.Client(ALL, decode=decode) as c:
            c.set(key("l"), memoryview(LARGE))
            read = c.iget(key("l"))
            equal(read.wait() == LARGE, True)
            if decode != "auto":
                equal(read.phases.decoded_here, decode == "client")
            buffer = bytearray(len(LARGE))
            equal((c.get(key("l"), into=buffer), buffer == LARGE), (len(LARGE), True))


def under_way():
    with paritas.Client(ALL) as c:
        writes = [c.iset(key(f"u{n}"), str(n)) for n in range(60)]
        for write in writes:
            write.wait()
        reads = {c.iget(key(f"u{n}")): str(n).encode() for n in range(60)}
        while reads:
            ended = paritas.wait_any(list(reads))
            equal(ended.wait(), reads.pop(ended))


# Commands go to the first address, so that it is the node that dies.
FIRST = ALL[VICTIM:] + ALL[:VICTIM]


def connect(decode):
    """Values are large for the client, and short for who compares them."""

    def connected():
        c = paritas.Client(FIRST, decode=decode)

        def put(name, value):
            c.set(name, value.ljust(200_000))
            return True

        return put, lambda name: (c.get(name) or b"").decode().rstrip()

    return connected


T = Trial("paritas", paritas.__version__)
T.check("any-key", "strings", strings)
T.check("any-key", "large values: server, client, auto", large_values)
T.check("any-key", "60 operations under way", under_way)
T.ride({f"large values, decode={decode}": connect(decode) for decode in ("server", "client")})
