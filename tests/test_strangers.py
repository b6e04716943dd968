"""Strangers who reach the ports of peers and of the coordinator: they learn nothing, change nothing and end nobody, and the log
has one line for each."""

import contextlib
import json
import re
import socket
import struct
import subprocess
import threading

import pytest
import redis

from conftest import BINARY, TIMEOUT_S, Cluster, answers, free_base, is_running, serves, until
from greeting import COORDINATOR, NODE, OPERATOR, SUPERVISOR, Greeting, answer, call, exactly, known, receive
from test_bad_input import crc32c, everything, frame, num

PASSWORD = "the-password-of-the-test"
KEYS = 200
GUESS = b"0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Six nodes with a password, and keys."""
    directory = tmp_path_factory.mktemp("strangers")
    password = directory / "password"
    password.write_text(PASSWORD + "\n", encoding="utf-8")
    made = Cluster(directory, more=["--password-file", str(password)])
    made.password_file = password
    made.secret = (directory / "data" / "secret").read_bytes().strip()
    made.about = status_of(made)
    made.began = {node["id"]: node["pid"] for node in made.about["nodes"]}
    client = made.client(password=PASSWORD)
    for key in range(KEYS):
        client.set(f"k{key}", f"value-{key}")
    yield made
    made.stop()


def status_of(cluster):
    command = [BINARY, "status", "--port", str(cluster.port), "--json", "--password-file", str(cluster.password_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return json.loads(done.stdout)


def to(cluster, node):
    """A connection to the port of peers of a node, or to the coordinator's."""
    about = cluster.about
    address = about["coordinator_address"] if node is None else about["nodes"][node]["peer_address"]
    host, port = address.rsplit(":", 1)
    return contextlib.closing(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))


def incarnation(cluster, node):
    """That of the process which runs, from its log."""
    log = (cluster.directory / "data" / f"node-{node}.log").read_text(encoding="utf-8")
    return int(re.findall(r"node runs node=n\d+ incarnation=([0-9a-f]{16})", log)[-1], 16)


def refusals(cluster, node, stream):
    """What the log of the other end has of a connection."""
    name = "coordinator" if node is None else f"node-{node}"
    host, port = stream.getsockname()
    log = (cluster.directory / "data" / f"{name}.log").read_text(encoding="utf-8")
    return re.findall(rf"refused {host}:{port}: (.*)", log)


def one_line(cluster, node, stream, says):
    until(lambda: refusals(cluster, node, stream), "a line in the log")
    lines = refusals(cluster, node, stream)
    assert len(lines) == 1 and says in lines[0], lines


def all_well(cluster):
    """Every process that ran at first runs, and every key is right."""
    assert {node["id"]: node["pid"] for node in status_of(cluster)["nodes"]} == cluster.began
    assert all(map(is_running, cluster.began.values()))
    client = cluster.client(1, password=PASSWORD)
    assert client.mget([f"k{key}" for key in range(KEYS)]) == [f"value-{key}" for key in range(KEYS)]


def posing(cluster, node=0, to_node=1, **fields):
    """What node 0 says to node 1."""
    return Greeting(node=node, incarnation=incarnation(cluster, node), to_node=to_node, **fields)


def hello(theirs, cluster, node=0, session=1, from_incarnation=None):
    """The first frame of a link, as node 0 to the process that has answered."""
    own = incarnation(cluster, node) if from_incarnation is None else from_incarnation
    body = struct.pack("<QHQHQBHHQQ", theirs.cluster, node, own, theirs.node, theirs.incarnation, 0, theirs.low, theirs.high, 0,
                       session)
    return frame(1, body)


def forward(key):
    """A GET that a node sends on for its client: nobody asks for the password then."""
    command = b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key)
    return frame(33, num(1) + num(1) + b"\0" + command)


def test_a_frame_without_a_greeting_reads_nothing(cluster):
    with to(cluster, 1) as stream:
        stream.sendall(frame(1, struct.pack("<QHQHQBHHQQ", 1, 0, incarnation(cluster, 0), 1, incarnation(cluster, 1), 0, 4, 4, 0, 99)))
        assert everything(stream) == b""
        one_line(cluster, 1, stream, "no greeting")
    all_well(cluster)


@pytest.mark.parametrize("node", [1, None])
def test_a_guessed_secret_is_refused(cluster, node):
    for secret, reason, says in [(GUESS, "other secret", "does not have the caller's secret"), (b"", "no secret", "gave no secret")]:
        with to(cluster, node) as stream:
            assert call(stream, posing(cluster), secret) == reason
            assert everything(stream) == b""
            one_line(cluster, node, stream, says)
    all_well(cluster)


@pytest.mark.parametrize("node", [1, None])
def test_who_knows_the_name_of_the_secret_but_not_the_secret_is_refused(cluster, node):
    with to(cluster, node) as stream:
        theirs, _, wrong = call(stream, posing(cluster), GUESS, named=cluster.secret)
        with contextlib.suppress(OSError):
            stream.sendall(wrong + hello(theirs, cluster) + forward(b"k1"))
        assert everything(stream) == b""
        one_line(cluster, node, stream, "wrong proof")
    all_well(cluster)


@pytest.mark.parametrize("node", [1, None])
def test_a_replayed_greeting_is_refused(cluster, node):
    # It has seen all that another process has sent: greeting and proof.
    with to(cluster, node) as stream:
        _, sent, follows = call(stream, posing(cluster, role=NODE), cluster.secret)
    with to(cluster, node) as stream:
        stream.sendall(sent)
        assert receive(stream)
        with contextlib.suppress(OSError):
            stream.sendall(follows + forward(b"k1"))
        assert everything(stream) == b""
        one_line(cluster, node, stream, "wrong proof")
    all_well(cluster)


def test_a_call_for_another_process_is_refused(cluster):
    for fields in [{"to_node": 2}, {"to_incarnation": 5}, {"cluster": 5}]:
        with to(cluster, 1) as stream:
            greeting = Greeting(**{**vars(posing(cluster)), **fields})
            assert call(stream, greeting, cluster.secret) in ("process", "cluster"), fields
            assert everything(stream) == b""
            one_line(cluster, 1, stream, "another")
    for role in (SUPERVISOR, OPERATOR, COORDINATOR):
        with to(cluster, 1) as stream:
            assert call(stream, posing(cluster, role=role), cluster.secret) == "role"
            one_line(cluster, 1, stream, "no such process")
    all_well(cluster)


def test_an_old_session_does_not_take_the_place_of_the_link_in_use(cluster):
    with to(cluster, 1) as stream:
        theirs = known(stream, posing(cluster), cluster.secret)
        stream.sendall(hello(theirs, cluster, session=0) + forward(b"k1"))
        assert everything(stream) == b""
        one_line(cluster, 1, stream, "an older session")
    all_well(cluster)


def test_a_node_that_poses_as_another_is_refused(cluster):
    with to(cluster, 1) as stream:
        theirs = known(stream, Greeting(node=9, incarnation=7, to_node=1), cluster.secret)
        stream.sendall(hello(theirs, cluster, session=1 << 40) + forward(b"k1"))
        assert everything(stream) == b""
        one_line(cluster, 1, stream, "another process than the one that has proven itself")
    all_well(cluster)


# --- the coordinator's port -------------------------------------------------------------------------------------------


def control(kind, *numbers, version=7):
    """A message to the coordinator: its number, and its fields."""
    body = bytes([version, kind]) + b"".join(map(num, numbers))
    return struct.pack("<II", len(body), crc32c(body)) + body


def ends(cluster, version=7):
    """What ended three nodes that lived."""
    return b"".join(
        control(kind, node, incarnation(cluster, node), version=version) for node in (1, 2, 3) for kind in (5, 6))


def test_a_stranger_ends_no_node(cluster):
    with to(cluster, None) as stream:
        with contextlib.suppress(OSError):
            stream.sendall(ends(cluster))
        assert everything(stream) == b""
        one_line(cluster, None, stream, "no greeting")
    all_well(cluster)


@pytest.mark.parametrize("who", ["an operator", "another node"])
def test_nobody_but_a_node_and_its_supervisor_says_that_it_has_ended(cluster, who):
    greeting = Greeting(role=OPERATOR) if who == "an operator" else Greeting(node=9, incarnation=7)
    with to(cluster, None) as stream:
        theirs = known(stream, greeting, cluster.secret)
        with contextlib.suppress(OSError):
            stream.sendall(ends(cluster, theirs.high))
        everything(stream)
        one_line(cluster, None, stream, "`Supervise` from ")
    all_well(cluster)


def test_a_node_gives_no_order_that_can_lose_data_and_registers_as_nobody_else(cluster):
    with to(cluster, None) as stream:
        theirs = known(stream, posing(cluster), cluster.secret)
        # Fence node 1, confirmed.
        stream.sendall(control(11, 1, 1, 1, 1, 1, version=theirs.high))
        length, _ = struct.unpack("<II", exactly(stream, 8))
        assert b"own machine" in exactly(stream, length)
        one_line(cluster, None, stream, "`Order` from n0")
    all_well(cluster)


def test_an_operator_elsewhere_needs_the_secret_and_here_none(cluster, tmp_path):
    coordinator = cluster.about["coordinator_address"]

    def status(*more):
        command = [BINARY, "status", "--coordinator", coordinator, *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert status().returncode == 0
    assert status("--secret-file", str(cluster.directory / "data" / "secret")).returncode == 0
    wrong = tmp_path / "wrong"
    wrong.write_bytes(GUESS)
    done = status("--secret-file", str(wrong))
    assert done.returncode != 0 and "secret_file" in done.stderr and GUESS.decode() not in done.stderr, done.stderr


@pytest.mark.parametrize("node", [1, None])
def test_connections_held_open_keep_nobody_out(cluster, node):
    with contextlib.ExitStack() as held:
        strangers = [held.enter_context(to(cluster, node)) for _ in range(64)]
        # A process that knows the secret comes in, and the oldest of the others goes.
        with to(cluster, node) as stream:
            known(stream, posing(cluster, session=1 << 41), cluster.secret)
            strangers[0].settimeout(TIMEOUT_S)
            assert everything(strangers[0]) == b""
            one_line(cluster, node, strangers[0], "it has not proven who it is")
        all_well(cluster)
        # The rest is closed in time.
        assert all(everything(stranger) == b"" for stranger in strangers)


# --- clusters by hand -------------------------------------------------------------------------------------------------


def by_hand(run, tmp_path, node_lines="", scheme="2+1", nodes=3):
    base = free_base(nodes + 1)
    listen = f"127.0.0.1:{base + 20_000}"
    secret = f'secret_file = "{tmp_path}/secret"\n'
    log = 'log = "trace"\n'
    settings = f'{secret}{log}listen = "{listen}"\nstore = "{tmp_path}/store"\nscheme = "{scheme}"\nmemory = "64mb"\n'
    processes = [run("coordinator", settings)]

    def node(number, lines):
        text = f'id = {number}\nport = {base + number}\nmemory = "64mb"\ncoordinator = ["{listen}"]\n{lines}'
        return run("node", log + text)

    processes += [node(number, secret + node_lines) for number in range(nodes)]
    return base, listen, processes, node


def test_a_coordinator_that_has_not_the_secret_is_not_believed(run, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"5" * 64 + b"\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = []

        def pretend():
            for _ in range(2):
                stream, _ = server.accept()
                with stream:
                    answer(stream, GUESS)
                    heard.append(everything(stream))

        false = threading.Thread(target=pretend, daemon=True)
        false.start()
        address = "127.0.0.1:%d" % server.getsockname()[1]
        port = free_base(1)
        settings = f'id = 0\nport = {port}\nmemory = "64mb"\ncoordinator = ["{address}"]\nsecret_file = "{secret}"\n'
        node = run("node", settings)
        until(lambda: len(heard) == 2, "two calls")
        # It has said nothing after the greeting.
        assert heard == [b"", b""]
        log = node.log.read_text(encoding="utf-8")
        assert log.count("wrong proof") == 1 and node.poll() is None, log


def test_no_log_has_the_secret_the_password_or_a_value(run, tmp_path):
    (tmp_path / "password").write_text(PASSWORD + "\n", encoding="utf-8")
    base, listen, processes, _ = by_hand(run, tmp_path, f'password_file = "{tmp_path}/password"\n')
    client = redis.Redis(port=base, password=PASSWORD, socket_timeout=TIMEOUT_S)
    value = "the-value-that-nobody-may-read"

    def is_set():
        try:
            return client.set("key", value)
        except redis.RedisError:
            return False

    until(is_set, "a write")
    assert client.get("key") == value.encode()
    with pytest.raises(redis.RedisError):
        redis.Redis(port=base, password="a-wrong-password-too", socket_timeout=TIMEOUT_S).get("key")
    host, port = listen.split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as stream:
        assert call(stream, Greeting(role=OPERATOR), GUESS) == "other secret"
    secret = (tmp_path / "secret").read_text(encoding="utf-8").strip()
    until(lambda: "refused" in processes[0].log.read_text(encoding="utf-8"), "the refusal in the log")
    for process in processes:
        log = process.log.read_text(encoding="utf-8")
        assert log, "no log"
        for hidden in (secret, PASSWORD, value, "a-wrong-password-too", GUESS.decode()):
            assert hidden not in log


def test_the_secret_is_changed_while_nodes_run(run, tmp_path):
    base, _, processes, node = by_hand(run, tmp_path)
    until(lambda: all(serves(base + number) for number in range(3)), "all nodes to serve")
    path = tmp_path / "secret"
    old, new = path.read_text(encoding="utf-8"), "n" * 64 + "\n"
    # Both are accepted, then the new one is used, and it alone is left.
    for text in (old + new, new + old):
        path.write_text(text, encoding="utf-8")
        for process in processes:
            logged = process.log.read_text(encoding="utf-8").count
            seen = 1 if text.startswith(old) else 2
            until(lambda logged=logged, seen=seen, process=process: process.log.read_text(encoding="utf-8").count(
                "the secret has changed") >= seen, "the new secrets to hold")
    (tmp_path / "new").write_text(new, encoding="utf-8")
    node(3, f'secret_file = "{tmp_path}/new"\n')
    until(lambda: answers(base + 3) and serves(base + 3), "a node that knows only the new secret")
    (tmp_path / "old").write_text(old, encoding="utf-8")
    path.write_text(new, encoding="utf-8")
    assert all(process.poll() is None for process in processes)


def test_a_process_with_another_secret_ends_and_says_what_to_do(run, tmp_path):
    base, _, processes, node = by_hand(run, tmp_path, nodes=3)
    until(lambda: serves(base), "a node that serves")
    (tmp_path / "other").write_bytes(GUESS)
    for lines, says in [(f'secret_file = "{tmp_path}/other"\n', "the same line"), ("", "gave no secret")]:
        stranger = node(3, lines)
        assert stranger.wait(timeout=TIMEOUT_S) != 0
        log = stranger.log.read_text(encoding="utf-8")
        assert says in log and "secret_file" in log, log


@pytest.mark.parametrize("task, settings, says", [
    ("node", 'id = 0\nbind = "0.0.0.0"\nhost = "h"\ncoordinator = ["127.0.0.1:1"]\n', "Set password_file, or open = true"),
    ("node", 'id = 0\nbind = "0.0.0.0"\nhost = "h"\npassword_file = "p"\ncoordinator = ["127.0.0.1:1"]\n', "Set secret_file, or"),
    ("coordinator", 'listen = "0.0.0.0:6300"\nstore = "no-such-store"\n', "Set secret_file, or open = true"),
])
def test_nothing_is_open_to_other_machines_unprotected(run, task, settings, says):
    process = run(task, settings, create=False)
    assert process.wait(timeout=TIMEOUT_S) != 0
    log = process.log.read_text(encoding="utf-8")
    assert says in log, log
