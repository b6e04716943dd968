"""Clients that read large values themselves from the nodes that hold the parts: PARITAS.LOCATE and PARITAS.UNITS, by the
bytes of `docs/formats/large.md`."""

import functools
import struct

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.utils import str_if_bytes

from conftest import TIMEOUT_S, Background, Cluster, once_done, once_served, until
from test_large_values import bytes_of, owner_of, until_parts_are

MIB = 1 << 20
UNIT_BYTES = 16 << 10
UNITS_MAX = 32
COMMAND = "PARITAS.REDUNDANCY"


def table_of_crc32c():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = table_of_crc32c()


@functools.cache
def sum_of(unit):
    """That of a chunk that begins with the unit and ends with zeros."""
    crc = 0
    for byte in unit.ljust(UNIT_BYTES, b"\0"):
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc


class NoPart(Exception):
    """A holder does not have the units."""


class Located:
    """A reply to PARITAS.LOCATE."""

    def __init__(self, reply):
        version, self.list, self.x, record, self.tail, self.positions, unit_bytes, self.holders, capabilities = reply
        assert (version, unit_bytes, len(self.holders)) == (1, UNIT_BYTES, self.positions)
        assert record[0] == len(record) - 1
        kind, one, other, self.first = record[1:5]
        self.kind, self.logged = kind & 15, kind >> 4
        self.body_bytes = int.from_bytes(record[5:11], "little")
        self.groups = [group for group in struct.unpack("<QQ", record[11:27]) if group]
        self.capabilities = [capabilities[at : at + 8] for at in range(0, len(capabilities), 8)]
        assert len(self.capabilities) == len(self.groups)
        self.copies, self.data, self.parity = {0: (one, 1, 0), 1: (0, one, other), 2: (other, one, 0)}[self.kind]

    def holder(self, offset):
        return self.holders[(self.first + offset) % self.positions]

    def rows(self):
        """Length of the units of each row."""
        whole, rest = divmod(self.body_bytes, self.data * UNIT_BYTES)
        short = -(-rest // self.data)
        return [UNIT_BYTES] * whole + ([-(-short // 64) * 64] if rest else [])


class Reader:
    """Connections to the cluster ports, by address."""

    def __init__(self, **options):
        self.clients = {}
        self.options = {"socket_timeout": TIMEOUT_S, "retry": Retry(NoBackoff(), 0), **options}

    def at(self, address):
        if address not in self.clients:
            host, port = address.decode().rsplit(":", 1)
            self.clients[address] = redis.Redis(host, int(port), **self.options)
        return self.clients[address]

    def units(self, located, address, group, part, first, count, *check):
        """The sums of units of a part, and their bytes."""
        words = (located.list, located.x, located.groups[group], part, first, count, located.capabilities[group], *check)
        try:
            reply = self.at(address).execute_command("PARITAS.UNITS", *words)
        except redis.ResponseError as error:
            if str(error).startswith("NOPART "):
                raise NoPart from error
            raise
        return struct.unpack_from(f"<{count}I", reply), reply[4 * count :]

    def part(self, located, address, group, part, lengths):
        """All units of a part, with their sums."""
        found = []
        for first in range(0, len(lengths), UNITS_MAX):
            some = lengths[first : first + UNITS_MAX]
            sums, rest = self.units(located, address, group, part, first, len(some))
            for length, wanted in zip(some, sums):
                unit, rest = rest[:length], rest[length:]
                found.append((wanted, unit))
            assert rest == b""
        return found

    def value(self, located, copy=0):
        """The value: of the data blocks, or of this copy of `rep`."""
        rows = located.rows()
        if located.kind == 0:
            units = self.part(located, located.holder(copy), 0, copy, rows)
        else:
            blocks = [self.part(located, located.holder(i), 0, i, rows) for i in range(located.data)]
            units = [unit for row in zip(*blocks) for unit in row]
        return self.joined(located, units)

    @staticmethod
    def joined(located, units):
        """The value, when all units are here and each has its sum."""
        assert all(sum_of(unit) == wanted for wanted, unit in units)
        return b"".join(unit for _, unit in units)[: located.body_bytes] + located.tail

    def whole_copy(self, located):
        """The value: of the whole copy of `eor`."""
        lengths = [length for length in located.rows() for _ in range(located.data)]
        units = self.part(located, located.holder(located.data), 1, 0, lengths)
        return self.joined(located, units)


def locate(client, key):
    return Located(client.execute_command("PARITAS.LOCATE", key))


@pytest.fixture(scope="module", name="whole")
def start_whole(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("locate"), memory="256mb")
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("size", [65_537, MIB, 3 * MIB + 12_345])
def test_values_of_each_class_are_read_from_their_parts(whole, rng, size):
    value, reader = rng.randbytes(size), Reader()
    for class_ in "ec:4,2", "rep:3", "eor:3,4", "none":
        clients = [bytes_of(whole, node) for node in range(whole.nodes)]
        once_done(lambda: clients[0].set("key", value))
        assert clients[1].execute_command(COMMAND, "key", class_) == b"OK"
        for client in clients:
            located = locate(client, "key")
            assert reader.value(located) == value, class_
            if class_ == "rep:3":
                assert all(reader.value(located, copy) == value for copy in range(3))
            if class_ == "eor:3,4":
                assert reader.whole_copy(located) == value
        # With a comparison by the holder it is the same.
        given = [reader.units(located, located.holder(0), 0, 0, 0, 1, *check) for check in ((), ("CHECK",))]
        assert given[0] == given[1]


def test_other_values_are_answered_as_by_get(whole):
    client = bytes_of(whole, 0)
    client.delete("key")
    assert client.execute_command("PARITAS.LOCATE", "key") is None
    client.set("key", "short")
    assert client.execute_command("PARITAS.LOCATE", "key") == b"short"
    other = (owner_of(whole, "key") + 1) % whole.nodes
    strict = redis.Redis(port=whole.port + 1_000 + other, socket_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0))
    with pytest.raises(redis.exceptions.MovedError):
        strict.execute_command("PARITAS.LOCATE", "key")


def test_clients_can_ask_about_the_commands(whole):
    client = bytes_of(whole, 0)
    known = client.execute_command("COMMAND INFO", "paritas.locate", "paritas.units")
    # Name, arity, flags, and the index of the first key.
    assert [(entry[0], entry[1], entry[3]) for entry in known] == [(b"paritas.locate", 2, 1), (b"paritas.units", -8, 0)]
    assert all({"readonly", "noscript"} <= {str_if_bytes(flag) for flag in entry[2]} for entry in known)
    assert client.command_getkeys("PARITAS.LOCATE", "key") == ["key"]
    docs = client.execute_command("COMMAND DOCS", "paritas.locate", "paritas.units")
    assert set(docs) == {b"paritas.locate", b"paritas.units"}


def test_a_connection_that_guesses_capabilities_is_closed(whole, rng):
    client, value = bytes_of(whole, 0), rng.randbytes(MIB)
    once_done(lambda: client.set("key", value))
    located, reader = locate(client, "key"), Reader()
    holder = reader.at(located.holder(0))
    before = holder.info("paritas")["wrong_capabilities"]
    right = located.capabilities[0]
    with holder.client() as connection:
        located.capabilities[0] = bytes(8)
        words = (located.list, located.x, located.groups[0], 0, 0, 1)
        for _ in range(3):
            with pytest.raises(redis.exceptions.NoPermissionError):
                connection.execute_command("PARITAS.UNITS", *words, bytes(8))
        with pytest.raises(redis.ConnectionError):
            connection.execute_command("PARITAS.UNITS", *words, right)
    assert holder.info("paritas")["wrong_capabilities"] == before + 3
    located.capabilities[0] = right
    assert reader.value(located) == value


class Writer(Background):
    """Sets a key to one value after the other: all bytes of each are the same."""

    def __init__(self, cluster, size):
        super().__init__()
        self.client, self.size, self.written = bytes_of(cluster, 1), size, 0

    def work(self):
        while not self.ending.is_set():
            self.written += 1
            once_done(lambda: self.client.set("key", bytes([self.written % 256]) * self.size))


def test_a_value_that_is_overwritten_is_never_mixed(whole):
    client, reader, size = bytes_of(whole, 2), Reader(), 128 << 10
    once_done(lambda: client.set("key", bytes(size)))
    writer = Writer(whole, size)
    writer.start()
    whole_ones = gone = 0
    try:
        while whole_ones < 20:
            try:
                value = reader.value(locate(client, "key"))
            except NoPart:
                gone += 1
                assert gone < 10_000
                continue
            assert value == value[:1] * size
            whole_ones += 1
    finally:
        writer.stop()
    located = locate(client, "key")
    client.delete("key")

    def is_gone():
        try:
            reader.units(located, located.holder(0), 0, 0, 0, 1)
        except NoPart:
            return True
        return False

    until(is_gone, "no part")


def test_a_value_is_read_on_when_its_owner_is_dead(start_cluster, rng):
    cluster = start_cluster(memory="256mb", more=("--redundancy-rules", "* rep:3"))
    client, value, reader = bytes_of(cluster, 0), rng.randbytes(MIB), Reader()
    key = next(key for key in map(str, range(1_000)) if owner_of(cluster, key) == 3)
    once_done(lambda: client.set(key, value))
    located = locate(client, key)
    dead = cluster.kill(3)
    # Copy 0 is at the owner. Nobody is asked but the holders of the other two.
    assert reader.value(located, 1) == reader.value(located, 2) == value
    cluster.until_replaced(dead)
    again = once_served(lambda: locate(client, key))
    assert again.groups == located.groups
    assert all(reader.value(again, copy) == value for copy in range(3))


def test_parts_on_log_nodes_are_not_given(start_cluster, rng):
    cluster = start_cluster(scheme="4+2/1", nodes=5, log_nodes=1, memory="256mb")
    client, value, reader = bytes_of(cluster, 0), rng.randbytes(MIB), Reader()
    once_done(lambda: client.set("key", value))
    located = locate(client, "key")
    assert (located.positions, located.logged) == (5, 1)
    assert reader.value(located) == value
    log_node = b"127.0.0.1:%d" % (cluster.port + 1_000 + 5)
    with pytest.raises(NoPart):
        reader.units(located, log_node, 1, 1, 0, 1)
    client.delete("key")
    until_parts_are(cluster, 0)


def test_without_the_password_no_unit_is_given(start_cluster, tmp_path, rng):
    path = tmp_path / "password"
    path.write_text("correct horse\n", encoding="utf-8")
    path.chmod(0o600)
    cluster = start_cluster(nodes=5, scheme="2+2", more=("--password-file", str(path)))
    client = cluster.client(password="correct horse", decode_responses=False)
    value = rng.randbytes(MIB)
    once_done(lambda: client.set("key", value))
    located = locate(client, "key")
    assert Reader(password="correct horse").value(located) == value
    with pytest.raises(redis.exceptions.AuthenticationError):
        Reader().value(located)
    with pytest.raises(redis.exceptions.AuthenticationError):
        locate(bytes_of(cluster, 0), "key")


def test_it_is_switched_off_at_each_node(start_cluster, rng):
    cluster = start_cluster(nodes=3, scheme="2+1")
    clients = [bytes_of(cluster, node) for node in range(3)]
    value, reader = rng.randbytes(MIB), Reader()
    once_done(lambda: clients[0].set("key", value))
    located = locate(clients[0], "key")
    assert [client.config_get("client-coding") for client in clients] == [{"client-coding": "read"}] * 3
    for client in clients:
        client.config_set("client-coding", "off")
        with pytest.raises(redis.ResponseError, match="must be one of the following: off, read, on"):
            client.config_set("client-coding", "yes")
    for ask in lambda: locate(clients[0], "key"), lambda: reader.value(located):
        with pytest.raises(redis.ResponseError, match='client_coding = "off"'):
            ask()
    for client in clients:
        client.config_set("client-coding", "read")
    assert reader.value(located) == value
