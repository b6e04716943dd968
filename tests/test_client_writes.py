"""The client of Paritas encodes large values and writes their parts: what docs/client.md promises of `encode`."""

import os
import threading
import time

import pytest

from conftest import Background, Cluster, once_served, standing_still, until
from test_client_faces import C, BUILT, addresses, compile_c, paritas, run_program
from test_large_values import bytes_of, is_owner, owner_of, until_parts_are

MIB = 1 << 20
# The last short one, the first with parts, one with a tail, one of several rows, one of several steps.
SIZES = [1, 64 << 10, (64 << 10) + 1, 100_000, 300_007, MIB, 5_000_001]


def allow(cluster, coding="on"):
    for node in range(cluster.nodes):
        assert cluster.client(node).config_set("client-coding", coding)
    return cluster


@pytest.fixture(scope="module", name="on")
def shared(tmp_path_factory):
    """A 4+2 cluster whose nodes take parts from clients. Tests use keys of their own, and kill nothing."""
    started = Cluster(tmp_path_factory.mktemp("writes"), memory="256mb")
    yield allow(started)
    started.stop()


def is_encoded_here(client, key, value):
    operation = client.iset(key, value)
    assert operation.wait() is None
    return operation.phases.encoded_here


@pytest.mark.parametrize("encode", ["server", "client", "auto"])
def test_values_of_all_sizes_are_written(on, rng, encode):
    with paritas.Client(addresses(on), encode=encode) as client:
        for size in SIZES * 3:
            value = rng.randbytes(size)
            is_here = is_encoded_here(client, "writes:key", value)
            if encode != "auto":
                assert is_here == (encode == "client" and size > 64 << 10), size
            for node in range(on.nodes):
                assert bytes_of(on, node).get("writes:key") == value
            assert client.get("writes:key") == value
        stats = client.stats()
        assert (stats.encoded_here > 0) == (stats.put_bytes > 0) == (encode != "server")
        assert stats.encoded_by_node == 0
        assert client.command("DEL", "writes:key") == 1


def test_it_has_the_class_and_the_memory_of_a_value_that_a_node_encodes(start_cluster, rng):
    cluster = allow(start_cluster())
    # 23 rows of four units and two parities, without a tail.
    value, classes = rng.randbytes(23 * 64 << 10), []
    for encode in "server", "client":
        with paritas.Client(addresses(cluster), encode=encode) as client:
            for _ in range(5):
                assert is_encoded_here(client, "key", value) == (encode == "client")
            classes.append(client.command("PARITAS.REDUNDANCY", "key"))
            # Only parts of the last value stay.
            until_parts_are(cluster, len(value) * 3 // 2)
            assert client.command("DEL", "key") == 1
            until_parts_are(cluster, 0)
    assert classes[0] == classes[1]


def test_each_command_with_a_value_keeps_its_meaning(on, rng):
    first, second = rng.randbytes(200_000), rng.randbytes(300_000)
    with paritas.Client(addresses(on), encode="client") as client:

        def run(*words):
            operation = client.icommand(*words)
            return operation.wait(), operation.phases.encoded_here

        key = "writes:commands"
        assert run("SET", key, first, "XX") == (None, True)
        assert run("SETNX", key, first) == (1, True)
        assert run("SETNX", key, second) == (0, True)
        assert run("GETSET", key, second) == (first, True)
        assert run("SET", key, first, "GET") == (second, True)
        assert run("SETEX", key, 1_000, second) == ("OK", True)
        assert 0 < client.command("TTL", key) <= 1_000
        assert run("SET", key, first, "KEEPTTL") == ("OK", True)
        assert 0 < client.command("TTL", key) <= 1_000
        assert run("PSETEX", key, 2_000_000, second) == ("OK", True)
        assert 1_000 < client.command("TTL", key) <= 2_000
        for wrong in ("SETEX", key, 0, first), ("SET", key, first, "EX", "soon"), ("SET", key, first, "NX", "XX"):
            with pytest.raises(paritas.Refused, match="ERR"):
                client.command(*wrong)
        assert client.get(key) == second, "what was refused has not happened"
        # Short values, and commands that make a value of two, go to a node.
        assert run("SET", key, b"short") == ("OK", False)
        assert run("APPEND", key, first) == (200_005, False)
        assert client.command("DEL", key) == 1


def test_what_is_submitted_for_one_key_happens_in_that_order(on, rng):
    values = [rng.randbytes(rng.choice([100, 70_000, 400_000])) for _ in range(12)]
    with paritas.Client(addresses(on), encode="client") as client:
        operations = []
        for value in values:
            operations += [client.iset("writes:order", value), client.iget("writes:order"), client.iget("writes:order")]
        operations.append(client.icommand("DEL", "writes:order"))
        operations.append(client.iget("writes:order"))
        wanted = [result for value in values for result in (None, value, value)]
        assert [operation.wait() for operation in operations] == [*wanted, 1, None]
        assert client.stats().encoded_here > 0


def test_many_values_of_several_threads(on, rng):
    def write(client, name, values):
        operations = []
        for n, value in enumerate(values):
            while True:
                try:
                    operations.append(client.iset(f"writes:{name}:{n}", value))
                    break
                except paritas.Busy:
                    operations.pop(0).wait()
        for operation in operations:
            operation.wait()

    with paritas.Client(addresses(on), encode="client") as client:
        all_values = {name: [rng.randbytes(rng.choice([70_000, 500_000, 2 * MIB])) for _ in range(20)] for name in "abc"}
        threads = [threading.Thread(target=write, args=(client, name, values)) for name, values in all_values.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, values in all_values.items():
            for n, value in enumerate(values):
                assert client.get(f"writes:{name}:{n}") == value
                client.command("DEL", f"writes:{name}:{n}")
        assert client.stats().encoded_here == 60


def test_nodes_that_take_no_parts_get_the_whole_value(cluster, rng):
    with paritas.Client(addresses(cluster), encode="client") as client:
        for _ in range(5):
            value = rng.randbytes(200_000)
            assert not is_encoded_here(client, "writes:off", value)
            assert client.get("writes:off") == value
        assert client.stats().encoded_by_node < 5, "it does not ask each time"
        assert client.command("DEL", "writes:off") == 1


def test_values_with_parts_on_log_nodes_are_encoded_by_a_node(start_cluster, rng):
    cluster = allow(start_cluster(scheme="4+2/1", nodes=5, log_nodes=1))
    value = rng.randbytes(400_000)
    with paritas.Client(addresses(cluster), encode="client") as client:
        assert not is_encoded_here(client, "key", value)
        assert client.get("key") == value and client.stats().encoded_by_node == 1


def test_after_the_loss_of_two_nodes_each_value_is_what_was_written(start_cluster, rng):
    cluster = allow(start_cluster())
    values = {f"key:{n}": rng.randbytes(rng.choice([70_000, 300_007, 2_000_003])) for n in range(24)}
    with paritas.Client(addresses(cluster), encode="client", deadline_ms=60_000) as client:
        for key, value in values.items():
            assert is_encoded_here(client, key, value)
        # Parities are read now, and then parts are made from them.
        for dead in ((1, 4), (0, 2)):
            cluster.until_replaced(cluster.kill(*dead))
            for key, value in values.items():
                assert client.get(key) == value, key
    survivor = bytes_of(cluster, 3)
    assert all(once_served(lambda key=key: survivor.get(key)) == value for key, value in values.items())


class Writes(Background):
    """Writes one key again and again. What may be its value is known."""

    def __init__(self, nodes, key, rng, **settings):
        super().__init__()
        self.client = paritas.Client(nodes, encode="client", **settings)
        self.key, self.rng = key, rng
        self.possible, self.done, self.here = {None}, 0, 0
        self.start()

    def work(self):
        while not self.ending.is_set():
            value = self.rng.randbytes(self.rng.choice([70_000, 500_000]))
            try:
                self.here += is_encoded_here(self.client, self.key, value)
                self.possible = {value}
            except paritas.Uncertain:
                self.possible.add(value)
            except (paritas.Refused, paritas.Unreachable):
                pass
            read = None
            try:
                read = self.client.get(self.key)
            except (paritas.Refused, paritas.Unreachable):
                continue
            finally:
                self.done += 1
            assert read in self.possible, f"{self.key} has a value that was not written"
            self.possible = {read}

    def until_more(self, count):
        before = self.done
        until(lambda: self.done >= before + count or not self.is_alive(), f"{count} more writes of {self.key}")


@pytest.mark.parametrize("dead", [0, 3])
def test_writers_go_on_while_a_node_dies(start_cluster, rng, dead):
    cluster = allow(start_cluster())
    writers = [Writes(addresses(cluster), f"key:{n}", rng, deadline_ms=30_000) for n in range(4)]
    for writer in writers:
        writer.until_more(10)
    cluster.until_replaced(cluster.kill(dead))
    for writer in writers:
        writer.until_more(10)
        writer.stop()
        assert writer.here > 0
        writer.client.close()


def test_a_holder_that_stands_still_does_not_stop_a_write(start_cluster, rng):
    cluster = allow(start_cluster())
    key = next(f"key:{n}" for n in range(1_000) if not is_owner(cluster, 4, f"key:{n}"))
    value = rng.randbytes(MIB)
    with paritas.Client(addresses(cluster)[:1], encode="client", retry_ms=200, deadline_ms=30_000) as client:
        assert is_encoded_here(client, key, value)
        began = time.monotonic()
        with standing_still(cluster.pids()[4]):
            value = rng.randbytes(MIB)
            operation = client.iset(key, value)
            # The cluster replaces a node that stands still, or the node answers again: the write ends in any case.
            until(lambda: operation.done() or time.monotonic() > began + 1, "the write, or a second")
        assert operation.wait() is None
        assert client.get(key) == value


def test_a_write_that_waits_for_a_silent_owner_ends(start_cluster, rng):
    cluster = allow(start_cluster())
    with paritas.Client(addresses(cluster), encode="client", retry_ms=200, deadline_ms=2_000) as client:
        value = rng.randbytes(200_000)
        assert is_encoded_here(client, "key", value)
        owner = owner_of(cluster, "key")
        other = rng.randbytes(200_000)
        with standing_still(cluster.pids()[owner]):
            operation = client.iset("key", other)
            until(operation.done, "the write to end")
        try:
            operation.wait()
            possible = {other}
        except paritas.Uncertain:
            possible = {value, other}
        except (paritas.Refused, paritas.Unreachable):
            possible = {value}
        assert once_served(lambda: bytes_of(cluster, (owner + 1) % cluster.nodes).get("key")) in possible


def test_the_password_of_clients(start_cluster, rng, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("open sesame\n", encoding="utf-8")
    cluster = start_cluster(more=["--password-file", str(secret)])
    value = rng.randbytes(300_000)
    with paritas.Client(addresses(cluster), password="open sesame", encode="client") as client:
        for address in addresses(cluster):
            with paritas.Client(address, password="open sesame") as one:
                assert one.command("CONFIG", "SET", "client-coding", "on", key=None) == "OK"
        assert is_encoded_here(client, "key", value)
        assert client.get("key") == value


def test_c_keeps_what_the_header_says_of_writes(on, tmp_path):
    libraries = [str(BUILT / "libparitas_client.a"), "-lpthread", "-ldl", "-lm", "-lgcc_s"]
    program = compile_c(C / "tests" / "faces.c", tmp_path / "faces", "-fsanitize=address", *libraries)
    assert run_program(program, ",".join(addresses(on)), "on", env={**os.environ}) == "all as the header says\n"
