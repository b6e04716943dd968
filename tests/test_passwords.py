"""The password of a cluster's nodes: right, wrong, missing; stock clients, our own commands, a steward whose cache has one."""

import json
import select
import socket
import subprocess

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import BINARY, TIMEOUT_S, Cluster, free_base, until
from test_files import Steward

PASSWORD = "correct horse"
NOAUTH = b"-NOAUTH Authentication required.\r\n"


@pytest.fixture(scope="module", name="path")
def make_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("secrets") / "password"
    path.write_text(PASSWORD + "\n", encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module", name="cluster")
def start_cluster(tmp_path_factory, path):
    cluster = Cluster(tmp_path_factory.mktemp("passwords"), nodes=5, scheme="2+2", more=["--password-file", str(path)])
    yield cluster
    cluster.stop()


def answer_to(cluster, bytes_, offset=0):
    """All that a node answers to these bytes before it closes the connection, or has nothing more to say."""
    with cluster.socket(1, offset) as connection:
        connection.sendall(bytes_ + b"QUIT\r\n")
        answer = b""
        while more := connection.recv(1 << 16):
            answer += more
    return answer.removesuffix(b"+OK\r\n")


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def paritas(cluster, *words):
    return subprocess.run([BINARY, *words, "--port", str(cluster.port)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.parametrize("offset", [0, 1000], ids=["port", "cluster_port"])
def test_without_the_password_nothing_is_done(cluster, offset):
    key = b"{a}%d" % offset
    client = cluster.client(password=PASSWORD)
    client.set("there", "before")
    for words in [(b"PING",), (b"SET", key, b"1"), (b"GET", key), (b"INFO",), (b"CONFIG", b"GET", b"*"), (b"FLUSHALL",), (b"KEYS", b"*"),
                  (b"CLIENT", b"LIST"), (b"MULTI",), (b"PARITAS.STATUS",), (b"PARITAS.DUTY", b"1", b"drain"), (b"NO-SUCH",), (b"MSET", key, b"1")]:
        assert answer_to(cluster, command(*words), offset) == NOAUTH, words
    assert client.get("there") == "before" and client.exists(key) == 0
    assert all(node["duty"] == "full" for node in json.loads(client.execute_command("PARITAS.STATUS"))["nodes"])
    # All of a pipeline.
    assert answer_to(cluster, 20 * command(b"SET", key, b"1"), offset) == 20 * NOAUTH
    denied = cluster.client(1, password=PASSWORD).info("stats")["acl_access_denied_auth"]
    wrong = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
    for words in [(b"AUTH", b"wrong"), (b"AUTH", b"correct hors"), (b"AUTH", b"correct horses"), (b"AUTH", b"other", b"correct horse"),
                  (b"HELLO", b"3", b"AUTH", b"default", b"wrong")]:
        assert answer_to(cluster, command(*words) + command(b"GET", key), offset) == wrong + NOAUTH, words
    assert cluster.client(1, password=PASSWORD).info("stats")["acl_access_denied_auth"] >= denied + 5
    assert answer_to(cluster, command(b"AUTH"), offset) == b"-ERR wrong number of arguments for 'auth' command\r\n"
    assert answer_to(cluster, command(b"HELLO", b"3"), offset).startswith(b"-NOAUTH HELLO must be called with the client already")
    # The right one, also by HELLO; RESET ends it; a wrong one later does not.
    for words in [(b"AUTH", b"correct horse"), (b"AUTH", b"default", b"correct horse"), (b"HELLO", b"2", b"AUTH", b"default", b"correct horse")]:
        answer = answer_to(cluster, command(*words) + command(b"AUTH", b"wrong") + command(b"PING") + b"RESET\r\nPING\r\n", offset)
        assert answer.endswith(wrong + b"+PONG\r\n+RESET\r\n" + NOAUTH), answer


UNAUTHENTICATED = {
    "bulk": (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16385\r\n", b"unauthenticated bulk length"),
    "staged": (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n", b"unauthenticated bulk length"),
    "multibulk": (b"*11\r\n", b"unauthenticated multibulk length"),
    "inline": (b"x" * 70_000, b"too big inline request"),
}


@pytest.mark.parametrize("start, why", UNAUTHENTICATED.values(), ids=UNAUTHENTICATED)
def test_who_has_not_given_it_can_send_no_long_command(cluster, start, why):
    for cut in (len(start), len(start) - 1):
        with cluster.socket(0) as connection:
            for part in (start[:cut], start[cut:]):
                connection.sendall(part)
            # A client that goes on sending can read the error.
            select.select([connection], [], [], TIMEOUT_S)
            connection.sendall(10_000 * b"PING\r\n")
            answer = b""
            while more := connection.recv(1 << 16):
                answer += more
        assert answer == b"-ERR Protocol error: " + why + b"\r\n"


def test_the_limits_come_back_with_reset(cluster):
    with cluster.socket(0) as connection:
        connection.sendall(command(b"AUTH", b"correct horse") + b"RESET\r\n")
        answer = b""
        while len(answer) < len(b"+OK\r\n+RESET\r\n"):
            answer += connection.recv(100)
        connection.sendall(b"*11\r\n")
        assert connection.recv(100) == b"-ERR Protocol error: unauthenticated multibulk length\r\n"


def test_who_has_not_given_it_and_does_not_read_is_disconnected(cluster):
    client = cluster.client(password=PASSWORD)
    with cluster.socket(0) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        name = "%s:%d" % connection.getsockname()

        def closed():
            try:
                connection.sendall(10_000 * b"PING\r\n")
            except (BrokenPipeError, ConnectionResetError):
                return True
            except TimeoutError:
                pass  # The node takes no more.
            return all(each["addr"] != name for each in client.client_list())

        connection.settimeout(0.1)
        until(closed, "the client that does not read is disconnected")


def test_commands_behind_the_password_in_one_write_are_done(cluster):
    long = b"x" * 20_000
    sets = b"".join(command(b"SET", b"{p}%d" % i, long) for i in range(40))
    pipeline = b"PING\r\n" * 20 + command(b"AUTH", b"correct horse") + sets + command(b"GET", b"{p}39")
    assert answer_to(cluster, pipeline) == 20 * NOAUTH + 41 * b"+OK\r\n" + b"$20000\r\n" + long + b"\r\n"


def test_stock_clients_of_both_ports_work_with_it(cluster):
    client = cluster.client(password=PASSWORD)
    values = {f"key:{i}": f"value {i}" for i in range(100)}
    assert client.mset(values)
    assert client.mget(values) == list(values.values())
    large = "x" * 3_000_000
    assert client.set("large", large) and cluster.client(3, password=PASSWORD, protocol=3).get("large") == large
    wise = redis.RedisCluster(host="127.0.0.1", port=cluster.port + 1000, password=PASSWORD, socket_timeout=TIMEOUT_S,
                              decode_responses=True, retry=Retry(NoBackoff(), 3))
    assert all(wise.get(key) == value for key, value in values.items())
    with pytest.raises(redis.AuthenticationError):
        cluster.client(password="wrong").get("key:1")
    with pytest.raises(redis.AuthenticationError):
        cluster.client().get("key:1")


def test_our_own_commands_take_it(cluster, path, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n", encoding="utf-8")
    cluster.client(password=PASSWORD).set("kept", "yes")
    snapshot = tmp_path / "snapshot.rdb"
    for words in [("status",), ("status", "--json"), ("snapshot", str(snapshot)), ("restore", str(snapshot)), ("drain", "3", "--no-wait"),
                  ("drain", "3", "--undo"), ("move-slots", "0", "--to", "1"), ("set",)]:
        for more, why in [((), f"127.0.0.1:{cluster.port} has a password: give its file by --password-file"),
                          (("--password-file", str(wrong)), "refuses the password"),
                          (("--password-file", str(wrong) + "-none"), "No such file")]:
            failed = paritas(cluster, *words, *more)
            assert failed.returncode == 1 and why in failed.stderr, (words, failed.stderr)
        done = paritas(cluster, *words, "--password-file", str(path))
        assert done.returncode == 0, (words, done.stderr)
        assert PASSWORD not in done.stdout + done.stderr
    logs = list((cluster.directory / "data").glob("*.log"))
    assert len(logs) == 6 and all(PASSWORD not in log.read_text(encoding="utf-8") for log in logs)
    assert PASSWORD not in cluster.text()


def test_a_steward_uses_a_cache_in_paritas_that_has_one(cluster, path, tmp_path):
    steward = Steward(tmp_path, 0, cluster.port, cache_password_file=json.dumps(str(path)))
    try:
        until(steward.leads, "it leads")
        assert steward.cache(cluster.client(password=PASSWORD), 1) and steward.open(1)[0] == "cached"
    finally:
        steward.stop()


def test_a_node_by_hand_reads_it_from_its_file(run, tmp_path, path):
    base = free_base(1)
    listen = f"127.0.0.1:{base + 20_000}"
    run("coordinator", f'listen = "{listen}"\nstore = "{tmp_path}/store"\nscheme = "1+0"\nmemory = "64mb"\n')
    run("node", f'id = 0\nport = {base}\nmemory = "64mb"\ncoordinator = ["{listen}"]\npassword_file = "{path}"\n')
    client = redis.Redis(port=base, password=PASSWORD, socket_timeout=TIMEOUT_S)

    def is_set():
        try:
            return client.set("by", "hand")
        except redis.RedisError:
            return False

    until(is_set, "the node serves")
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=base, socket_timeout=TIMEOUT_S).get("by")


@pytest.mark.parametrize("text, why", [("", "it must have one line"), ("a\nb\n", "it must have one line"), (600 * "x", "at most 512 bytes"),
                                       (None, "No such file")])
def test_a_file_without_a_password_is_refused_at_the_start(tmp_path, text, why):
    path = tmp_path / "password"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    for words in [("dev",), ("node", "--id", "0", "--port", "0", "--cluster-port", "0", "--peer-port", "0", "--coordinator", "127.0.0.1:1")]:
        failed = subprocess.run([BINARY, *words, "--password-file", str(path)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert failed.returncode == 1 and str(path) in failed.stderr and why in failed.stderr, failed.stderr
