"""A cluster started process by process, from files."""

import subprocess

import pytest
import redis

from conftest import BINARY, PATIENCE, answers, free_base, serves, until


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


def test_a_process_killed_by_hand_and_started_again_is_rebuilt(run, tmp_path):
    """Nobody certifies its end, so its successor waits out the lease (PROTOCOL 5.5)."""
    base = free_base(3)
    coordinator = f'listen = "127.0.0.1:{base + 20_000}"\nstore = "{tmp_path}/store"\nscheme = "2+1"\nmemory = "64mb"\n'
    run("coordinator", coordinator)

    def start(node):
        settings = f'id = {node}\nport = {base + node}\nmemory = "64mb"\ncoordinator = ["127.0.0.1:{base + 20_000}"]\n'
        return run("node", settings)

    nodes = [start(node) for node in range(3)]
    until(lambda: all(serves(base + node) for node in range(3)), "all nodes to serve")
    client = redis.Redis(port=base, decode_responses=True, socket_timeout=PATIENCE)
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


def test_one_client_too_many_is_told_so(run, tmp_path):
    base = free_base(1)
    listen = f"127.0.0.1:{base + 20_000}"
    run("coordinator", f'listen = "{listen}"\nstore = "{tmp_path}/store"\nscheme = "1+0"\nmemory = "64mb"\n')
    run("node", f'id = 0\nport = {base}\nmemory = "64mb"\ncoordinator = ["{listen}"]\nclients_max = 3\n')
    until(lambda: answers(base), "the node to answer")
    clients = []
    # The connections of the polls above may not be gone yet.
    with pytest.raises(redis.ConnectionError, match="max number of clients reached"):
        for _ in range(20):
            clients.append(redis.Redis(port=base, socket_timeout=PATIENCE, single_connection_client=True))
            clients[-1].ping()
    for client in clients:
        client.close()
    until(lambda: answers(base), "room again")


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
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0
    assert f"settings.toml:{line}: " in done.stderr and says in done.stderr, done.stderr
