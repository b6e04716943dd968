"""A cluster started process by process, from settings files."""

import contextlib
import pathlib
import socket
import subprocess

import pytest
import redis

from conftest import BINARY, TIMEOUT_S, answers, free_base, once_done, serves, until


def test_a_cluster_from_files(run, tmp_path):
    base = free_base(3)
    coordinator = f'listen = "127.0.0.1:{base + 20_000}"\nstore = "{tmp_path}/store"\nscheme = "2+1"\nmemory = "64mb"\n'
    run("coordinator", coordinator)
    for node in range(3):
        settings = f'id = {node}\nport = {base + node}\nmemory = "64mb"\ncoordinator = ["127.0.0.1:{base + 20_000}"]\n'
        run("node", settings + 'maxmemory_policy = "volatile-ttl"\n')
    until(lambda: all(serves(base + node) for node in range(3)), "all nodes to serve")
    clients = [redis.Redis(port=base + node, decode_responses=True) for node in range(3)]
    for client in clients:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "volatile-ttl"}
    for n in range(100):
        clients[n % 3].set(f"hand:{n}", n)
    assert [clients[(n + 1) % 3].get(f"hand:{n}") for n in range(100)] == [str(n) for n in range(100)]


@pytest.mark.parametrize("peer_port", ["", "peer_port = 0\n"], ids=["same", "chosen"])
def test_a_process_killed_by_hand_and_started_again_is_rebuilt(run, tmp_path, peer_port):
    """No supervisor certifies its end, so its successor waits until the lease has ended (P5.5). Its port for the
    other nodes may be another one."""
    base = free_base(3)
    coordinator = f'listen = "127.0.0.1:{base + 20_000}"\nstore = "{tmp_path}/store"\nscheme = "2+1"\nmemory = "64mb"\n'
    run("coordinator", coordinator)

    def start(node):
        settings = f'id = {node}\nport = {base + node}\nmemory = "64mb"\ncoordinator = ["127.0.0.1:{base + 20_000}"]\n'
        return run("node", settings + peer_port)

    nodes = [start(node) for node in range(3)]
    until(lambda: all(serves(base + node) for node in range(3)), "all nodes to serve")
    client = redis.Redis(port=base, decode_responses=True, socket_timeout=TIMEOUT_S)
    for n in range(300):
        client.set(f"again:{n}", n)
    nodes[2].kill()
    nodes[2].wait()
    start(2)

    def all_there():
        try:
            return [client.get(f"again:{n}") for n in range(300)] == [str(n) for n in range(300)]
        except redis.RedisError:
            return False

    until(all_there, "every value")


def test_nodes_in_the_failure_domains_that_the_coordinator_names(run, tmp_path):
    base = free_base(3)
    listen = f"127.0.0.1:{base + 20_000}"
    coordinator = f'listen = "{listen}"\nstore = "{tmp_path}/store"\nscheme = "2+1"\nmemory = "64mb"\n'
    run("coordinator", coordinator + 'domains = ["rack1", "rack2", "rack3"]\n')
    settings = [f'id = {node}\nport = {base + node}\nmemory = "64mb"\ncoordinator = ["{listen}"]\n' for node in range(3)]
    wrong = run("node", settings[0] + 'domain = "rack3"\n')
    assert wrong.wait(TIMEOUT_S) != 0
    assert 'set domain = "rack1" in its settings, or leave domain out' in wrong.log.read_text(encoding="utf-8")
    run("node", settings[0] + 'domain = "rack1"\n')
    run("node", settings[1])
    run("node", settings[2] + 'domain = "rack3"\n')
    until(lambda: all(serves(base + node) for node in range(3)), "all nodes to serve")


def test_settings_change_while_it_runs_and_are_written_to_the_file(run, tmp_path):
    base = free_base(1)
    listen = f"127.0.0.1:{base + 20_000}"
    run("coordinator", f'listen = "{listen}"\nstore = "{tmp_path}/store"\nscheme = "1+0"\nmemory = "64mb"\n')
    settings = f'# by hand\nid = 0\nport = {base}\nmemory = "64mb"  # enough\ncoordinator = ["{listen}"]\n'
    node = run("node", settings)
    until(lambda: serves(base), "the node to serve")
    client = redis.Redis(port=base, decode_responses=True, single_connection_client=True)
    changes = {
        "maxmemory": "32mb",
        "maxmemory-policy": "allkeys-lfu",
        "maxmemory-clients": "25%",
        "maxclients": "3",
        "rebuild-rate": "50mb",
        "log-assist": "on",
        "redundancy-rules": "img:* none 1048576; \u00e9* rep:1",
        "redundancy-hotness": " ",
        "client-query-buffer-limit": "2mb",
        "reply-max": "4mb",
    }
    for name, value in changes.items():
        assert client.config_set(name, value)
    told = client.config_get(*changes)
    assert told == {
        "maxmemory": str(32 << 20),
        "maxmemory-policy": "allkeys-lfu",
        "maxmemory-clients": str((32 << 20) // 100 * 25),
        "maxclients": "3",
        "rebuild-rate": str(50 << 20),
        "log-assist": "on",
        "redundancy-rules": "img:* none 1048576; é* none",
        "redundancy-hotness": "",
        "client-query-buffer-limit": str(2 << 20),
        "reply-max": str(4 << 20),
    }
    assert client.info("memory")["maxmemory"] == 32 << 20
    for name, value, says in [
        ("maxmemory", "65mb", "between 33554432 and 67108864"),
        ("maxmemory", "lots", "memory value"),
        ("maxmemory-clients", "1", "between 1048576 and"),
        ("maxmemory-clients", "101%", "memory value"),
        ("maxclients", "0", "between 1 and"),
        ("maxclients", "many", "integer"),
        ("reply-max", "1", "between 1048576 and"),
        ("log-assist", "maybe", "one of the following: on, off, auto"),
        ("redundancy-rules", "img:* raid:5", "is not a redundancy class"),
        ("redundancy-hotness", "hot rep:2 cold none", "needs 2 nodes, and a stripe list of this cluster has 1"),
        ("redundancy-hotness", "hot rep:2", "expected hot CLASS cold CLASS"),
        ("redundancy-rules", "img:* rep:2", "needs 2 nodes, and a stripe list of this cluster has 1"),
        ("scheme", "2+1", "immutable"),
        ("nothing", "1", "Unknown option"),
    ]:
        with pytest.raises(redis.ResponseError, match=says):
            client.config_set(name, value)
    assert client.config_get(*changes) == told

    def is_full():
        others = []
        try:
            for _ in range(3):
                others.append(redis.Redis(port=base, socket_timeout=TIMEOUT_S, single_connection_client=True))
                others[-1].ping()
            return False
        except redis.ConnectionError as error:
            return "max number of clients" in str(error)
        finally:
            for other in others:
                other.close()

    until(is_full, "no more than three clients")

    assert client.config_rewrite()
    file = tmp_path / "node-1.toml"
    text = file.read_text(encoding="utf-8")
    assert text.startswith(f"# by hand\nid = 0\nport = {base}\nmemory = {32 << 20}  # enough\n"), text
    assert 'maxmemory_policy = "allkeys-lfu"\n' in text and "clients_max = 3\n" in text, text
    assert [path.name for path in tmp_path.glob("*.toml*")].count("node-1.toml") == 1
    assert not list(tmp_path.glob("*.new"))
    client.close()
    node.terminate()
    node.wait()
    # The next process has the same settings.
    command = [BINARY, "node", "--config", str(file)]
    with open(tmp_path / "again.log", "w", encoding="utf-8") as log:
        again = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        # The former process has certified its own end.
        until(lambda: answers(base), "the node to answer")
        client = until(lambda: connected(base), "one of its three connections")
        assert client.config_get(*changes) == told
    finally:
        again.kill()
        again.wait()


def connected(port):
    try:
        client = redis.Redis(port=port, decode_responses=True, single_connection_client=True)
        client.ping()
        return client
    except redis.RedisError:
        return None


def test_without_a_file_nothing_is_rewritten(cluster):
    with pytest.raises(redis.ResponseError, match="The server is running without a config file"):
        cluster.client().config_rewrite()


def test_one_client_too_many_is_told_so(run, tmp_path):
    base = free_base(1)
    listen = f"127.0.0.1:{base + 20_000}"
    run("coordinator", f'listen = "{listen}"\nstore = "{tmp_path}/store"\nscheme = "1+0"\nmemory = "64mb"\n')
    run("node", f'id = 0\nport = {base}\nmemory = "64mb"\ncoordinator = ["{listen}"]\nclients_max = 3\n')
    until(lambda: answers(base), "the node to answer")
    clients = []
    # The connections made by the polls above may still be open.
    with pytest.raises(redis.ConnectionError, match="max number of clients reached"):
        for _ in range(20):
            clients.append(redis.Redis(port=base, socket_timeout=TIMEOUT_S, single_connection_client=True))
            clients[-1].ping()
    for client in clients:
        client.close()
    until(lambda: answers(base), "a free connection")


def limited(limit):
    """A command that runs another one under a limit of the shell's `ulimit`."""
    return ("sh", "-c", f'ulimit {limit}; exec "$@"', "sh")


def try_client(port):
    """A client's connection, and the reply to its PING."""
    client = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    client.sendall(b"PING\r\n")
    return client, client.recv(100)


def test_a_silent_coordinator_is_named_once(run):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(TIMEOUT_S)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        node = run("node", f'id = 0\nport = {free_base(1)}\nmemory = "64mb"\ncoordinator = ["{address}"]\n')
        with contextlib.ExitStack() as stack:
            # The third connection is made when two were given up.
            for _ in range(3):
                stack.enter_context(silent.accept()[0])
            log = node.log.read_text()
            assert log.count("says nothing") == 1 and address in log, log


def test_few_descriptors_are_kept_for_peers(run, tmp_path):
    base = free_base(3)
    listen = f"127.0.0.1:{base + 20_000}"
    run("coordinator", f'listen = "{listen}"\nstore = "{tmp_path}/store"\nscheme = "2+1"\nmemory = "64mb"\n')

    def start(node, inside=()):
        settings = f'id = {node}\nport = {base + node}\nmemory = "64mb"\ncoordinator = ["{listen}"]\n'
        return run("node", settings, inside)

    poor = start(0, limited("-n 128"))
    other = start(1)
    start(2)
    until(lambda: all(serves(base + node) for node in range(3)), "all nodes to serve")
    until(lambda: "LimitNOFILE" in poor.log.read_text(), "the log to say so")
    taken = []
    with contextlib.ExitStack() as stack:
        while True:
            client, answer = try_client(base)
            stack.enter_context(client)
            if answer != b"+PONG\r\n":
                break
            taken.append(client)
        assert answer == b"-ERR max number of clients reached\r\n" and 20 < len(taken) < 128, (answer, len(taken))
        # With all clients connected, a peer that returns is accepted, and lists acknowledge writes.
        other.kill()
        other.wait()
        start(1)
        until(lambda: serves(base + 1), "the node that came back to serve")
        client = redis.Redis(port=base + 1, socket_timeout=TIMEOUT_S)
        assert all(once_done(lambda n=n: client.set(f"poor:{n}", n)) for n in range(100))
    assert poor.log.read_text().count("LimitNOFILE") == 1 and "cannot accept" not in poor.log.read_text()


def test_a_low_soft_limit_is_raised(run, tmp_path):
    base = free_base(1)
    listen = f"127.0.0.1:{base + 20_000}"
    run("coordinator", f'listen = "{listen}"\nstore = "{tmp_path}/store"\nscheme = "1+0"\nmemory = "64mb"\n')
    settings = f'id = 0\nport = {base}\nmemory = "64mb"\ncoordinator = ["{listen}"]\n'
    run("node", settings, limited("-Sn 64"))
    until(lambda: answers(base), "the node to answer")
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            client, answer = try_client(base)
            stack.enter_context(client)
            assert answer == b"+PONG\r\n"


@pytest.mark.parametrize(
    "task, settings, line, says",
    [
        ("node", "id = 1\n\nprot = 7000\n", 3, "prot"),
        ("node", 'id = 1\nmemory = "lots"\n', 2, "lots"),
        ("node", "id = 70000\n", 1, "id"),
        ("coordinator", 'scheme = "4+"\n', 1, "4+"),
        ("coordinator", 'listen = "here"\n', 1, "listen"),
        ("coordinator", 'scheme = "4+2"\nscheme = "4+2"\n', 2, "scheme"),
    ],
)
def test_a_wrong_setting_is_named_with_file_and_line(tmp_path, task, settings, line, says):
    file = tmp_path / "settings.toml"
    file.write_text(settings, encoding="utf-8")
    command = [BINARY, task, "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode != 0
    assert f"settings.toml:{line}: " in done.stderr and says in done.stderr, done.stderr


def orders(word):
    """The commands of the page docs/by-hand.md that give this order, without the program."""
    page = (pathlib.Path(__file__).parent.parent / "docs/by-hand.md").read_text(encoding="utf-8")
    return [line.split("#")[0].split()[1:] for line in page.splitlines() if line.startswith(f"    target/release/paritas {word} ")]


@pytest.mark.parametrize(
    "word, count, options", [("drain", 2, {"nodes": 7}), ("move-slots", 2, {"nodes": 3, "scheme": "2+1"})], ids=["drain", "move"]
)
def test_the_orders_on_the_page_work_as_written(start_cluster, word, count, options):
    assert len(orders(word)) == count
    cluster = start_cluster(memory="64mb", **options)
    for words in orders(word):
        words = [str(cluster.port) if text == "7700" else text for text in words]
        words += [] if "--port" in words else ["--port", str(cluster.port)]
        done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, (words, done)
