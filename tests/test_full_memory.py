"""Full memory: writes that need memory are refused, no data is lost, and reads and deletes work."""

import subprocess

import redis

from conftest import BINARY, TIMEOUT_S, free_base, serves, until
from test_memory_limit import has_memory_for


def test_full_memory_refuses_writes_loses_nothing_and_goes_on(start_cluster, rng):
    cluster = start_cluster(nodes=3, scheme="2+1", memory="64mb")
    client = cluster.client(decode_responses=False)
    values = {}
    refused = 0
    for n in range(20_000):
        key, value = b"full:%d" % n, rng.randbytes(30_000)
        try:
            client.set(key, value)
            values[key] = value
        except redis.exceptions.OutOfMemoryError as error:
            assert "command not allowed when used memory" in str(error)
            refused += 1
            # Lists become full one after the other.
            if refused == 500:
                break
    assert refused == 500, "memory was never full"

    def told():
        nodes = cluster.status()["nodes"]
        return sum(node["fill"]["refused_writes"] for node in nodes) == 500 and nodes

    nodes = until(told, "status to count the refused writes")
    assert {node["fill"]["limit_bytes"] for node in nodes} == {64 << 20}
    assert max(100 * node["fill"]["used_bytes"] // node["fill"]["writable_bytes"] for node in nodes) >= 90, nodes
    shown = subprocess.run([BINARY, "status", "--port", str(cluster.port)], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert " writes with -OOM" in shown.stdout and " 64.0 MB " in shown.stdout, shown.stdout
    until(lambda: "writes were refused with -OOM" in cluster.logs(), "a log to say so")
    print(f"{len(values)} values of 30,000 bytes in three nodes of 64 MiB")
    assert len(values) * 30_000 > 3 * 64 << 19, "too little of the memory holds values"
    for key, value in values.items():
        assert client.get(key) == value, key
    assert client.dbsize() == len(values)
    gone = rng.sample(sorted(values), len(values) // 2)
    for at in range(0, len(gone), 100):
        assert client.delete(*gone[at : at + 100]) == len(gone[at : at + 100])
    for key in gone:
        del values[key]
        until(lambda key=key: has_memory_for(client, key, b"small again"), "free memory after deleting")
    for key, value in values.items():
        assert client.get(key) == value, key


def test_more_memory_than_the_positions_of_a_node_take_is_named(run, tmp_path):
    """`1+0` on one node has one position, and that takes 4 GiB. The memory is only reserved."""
    base = free_base(1)
    listen = f"127.0.0.1:{base + 20_000}"
    run("coordinator", f'listen = "{listen}"\nstore = "{tmp_path}/store"\nscheme = "1+0"\nmemory = "64mb"\n')
    settings = f'id = 0\nport = {base}\ncoordinator = ["{listen}"]\n'
    says = "memory = 5.00 GB is more than it can fill with values up to 64 KiB. It holds 1 position, and each takes at most 4.00 GB"
    node = run("node", f'{settings}memory = "5gb"\n')
    until(lambda: serves(base), "the node to serve")
    until(lambda: says in node.log.read_text(encoding="utf-8"), "the log to say so")
    command = [BINARY, "status", "--port", str(base)]
    until(lambda: says in subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout, "status to say so")
    assert node.log.read_text(encoding="utf-8").count(says) == 1
    node.kill()
    node.wait()
    # There is no parity, so the list can't do without the first process until somebody says that it has ended.
    node = run("node", f'{settings}memory = "4gb"\n')
    fence = [BINARY, "fence", "0", "--yes", "--coordinator", listen]
    until(lambda: subprocess.run(fence, capture_output=True, timeout=TIMEOUT_S, check=False).returncode == 0, "the fence")
    until(lambda: serves(base), "the node to serve")

    def shown():
        text = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout
        return text if " 4.00 GB " in text else None

    shown = until(shown, "status to show the limit")
    assert "more than it can fill" not in shown + node.log.read_text(encoding="utf-8")
