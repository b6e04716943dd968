"""The coordinator in trouble, with default settings and real processes. It is away or stopped, alone or just before a
node dies; or its store is an old copy, or lost. No acknowledged write may be lost, and no position may move without
need (P10.9 to P10.16).

ROUNDS=100 repeats the tests with a death and those of the store. OUTAGES="0.5 1 3 10 60" and CLUSTERS="6 12 40" extend the others."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import BINARY, TIMEOUT_S, free_base, once_done, serves, standing_still, until

ROUNDS = int(os.environ.get("ROUNDS", "1"))
OUTAGES = [float(seconds) for seconds in os.environ.get("OUTAGES", "3").split()]
CLUSTERS = [int(nodes) for nodes in os.environ.get("CLUSTERS", "6 12").split()]
KEYS = 500
FLIPS = 40
# More than half of the default suspicion time of 1 s.
OUTAGE_NOTICED_S = 0.7


class ByHand:
    """A coordinator and nodes, each started from a file, with default settings. `more`: lines of the coordinator's."""

    def __init__(self, run, directory, nodes, scheme="4+2", more=""):
        self.run, self.nodes = run, nodes
        self.port = free_base(nodes)
        self.address = f"127.0.0.1:{self.port + 20_000}"
        self.store = directory / f"store-{self.port}"
        self.settings = (
            f'listen = "{self.address}"\nstore = "{self.store}"\nscheme = "{scheme}"\nnodes = {nodes}\nmemory = "64mb"\n{more}'
        )
        self.coordinator = run("coordinator", self.settings)
        self.processes = [self.start_node(node) for node in range(nodes)]
        until(lambda: all(serves(self.port + node) for node in range(nodes)) and self.is_whole(), "all nodes to serve")

    def start_node(self, node):
        return self.run(
            "node", f'id = {node}\nport = {self.port + node}\nmemory = "64mb"\ncoordinator = ["{self.address}"]\n'
        )

    def client(self, node=0):
        retry = Retry(NoBackoff(), 0)
        return redis.Redis(port=self.port + node, retry=retry, socket_timeout=TIMEOUT_S, decode_responses=True)

    def status(self, node=0):
        command = [BINARY, "status", "--port", str(self.port + node), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def is_whole(self):
        status = self.status()
        lists = status["lists"] if status else []
        return lists and not any(entry["reason"] for entry in lists)

    def holders(self):
        """The holder of each position."""
        lists = until(self.status, "a status")["lists"]
        return {(entry["id"], i): p["node"] for entry in lists for i, p in enumerate(entry["positions"])}

    def draw_holder(self, rng):
        """A node whose end changes a list. A restarted node may be a spare, whose end changes none. Not node 0, which is
        asked."""
        return rng.choice(sorted(set(self.holders().values()) - {0, None}))

    def epochs(self):
        return {entry["id"]: entry["epoch"] for entry in until(self.status, "a status")["lists"]}

    @contextlib.contextmanager
    def coordinator_stands_still(self):
        """For the coordinator, if it runs, all that happens within this happens at once: it counts silence from the end."""
        began = time.monotonic()
        with standing_still(*([self.coordinator.pid] if self.coordinator.poll() is None else [])):
            yield
            # It does so only after more than half of the suspicion time. The length of the outage is what is wanted.
            time.sleep(max(0, OUTAGE_NOTICED_S - (time.monotonic() - began)))

    def pause_coordinator(self, seconds):
        with self.coordinator_stands_still():
            time.sleep(seconds)  # the length of the outage is tested

    def replace_coordinator(self, seconds):
        self.stop_coordinator()
        time.sleep(seconds)  # as above
        self.start_coordinator()

    def stop_coordinator(self):
        self.coordinator.kill()
        self.coordinator.wait()

    def start_coordinator(self):
        self.coordinator = self.run("coordinator", self.settings, create=False)

    def says(self, words):
        return words in self.coordinator.log.read_text(encoding="utf-8")

    def restart(self, node):
        self.processes[node].kill()
        self.processes[node].wait()
        self.processes[node] = self.start_node(node)

    def is_settled(self):
        """Whether the coordinator hears all nodes and waits for nothing."""
        status = self.status()
        return status and not status["coordinator"] and all(node["state"] != "down" for node in status["nodes"])


def load(cluster):
    """Keys in all parts of the slots, each acknowledged."""
    values = {f"key:{n}": f"value {n}" for n in range(KEYS)}
    client = cluster.client()
    for key, value in values.items():
        assert once_done(lambda key=key, value=value: client.set(key, value))
    return values


@pytest.mark.timeout(120 * ROUNDS + 300)
@pytest.mark.parametrize("outage", ["pause", "restart"])
def test_a_coordinator_away_for_10_s_and_then_a_death_lose_nothing(run, tmp_path, rng, outage):
    # A node that stands still for a while keeps its positions.
    cluster = ByHand(run, tmp_path, nodes=12, more="suspicion_ms = 3000\n")
    values = load(cluster)
    for _ in range(ROUNDS):
        before = cluster.holders()
        (cluster.pause_coordinator if outage == "pause" else cluster.replace_coordinator)(10)
        time.sleep(rng.uniform(0, 5))  # the time of the death is random
        # Not node 0, which is asked for the status.
        victim = rng.choice(sorted(set(before.values()) - {0}))
        cluster.processes[victim].kill()
        cluster.processes[victim].wait()
        until(lambda: victim not in cluster.holders().values(), "others to take its place")
        moved = [place for place, holder in cluster.holders().items() if before[place] not in (victim, holder)]
        assert not moved, "positions of living nodes have moved"
        client = cluster.client()
        assert {key: client.get(key) for key in values} == values
        assert not any(entry["lost"] for entry in cluster.status()["lists"])
        cluster.processes[victim] = cluster.start_node(victim)
        until(lambda: cluster.is_whole() and cluster.is_settled(), "all positions live")


@pytest.mark.measures_time
@pytest.mark.timeout(sum(OUTAGES) * 10 * len(CLUSTERS) + 300)
@pytest.mark.parametrize("nodes", CLUSTERS)
def test_a_coordinator_away_changes_nothing(run, tmp_path, nodes):
    cluster = ByHand(run, tmp_path, nodes)
    before = cluster.holders(), cluster.epochs()
    for seconds in OUTAGES:
        for away in (cluster.pause_coordinator, cluster.replace_coordinator):
            away(seconds)
            until(cluster.is_settled, "the coordinator to hear all nodes")
            assert (cluster.holders(), cluster.epochs()) == before, f"after {seconds} s"


def answer(client, key):
    """A node's answer about a key; `error` if it has none."""
    try:
        return client.get(key)
    except redis.RedisError:
        return "error"


def answers(client, keys):
    """Asks for all keys at once, so that a key that waits for an absent node delays no other."""
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        return dict(zip(keys, pool.map(lambda key: answer(client, key), keys)))


def test_a_node_that_stood_still_together_with_the_coordinator_gives_no_old_value(run, tmp_path, rng):
    """As if one hypervisor had paused the guests of both, the node's for longer than its leases and its replacement."""
    cluster = ByHand(run, tmp_path, nodes=7)
    keys = list(load(cluster))[::10]
    node = cluster.processes[cluster.draw_holder(rng)]
    # Connected before, so that the first replies afterwards come from the state of then.
    client = cluster.client(cluster.processes.index(node))
    assert client.get(keys[0]) == "value 0"
    node.send_signal(signal.SIGSTOP)
    try:
        cluster.pause_coordinator(3)
        writer = cluster.client()

        def write(key):
            try:
                return writer.set(key, "new")
            except redis.RedisError:
                return False

        for key in keys:
            until(lambda: write(key), f"{key} to take a write")
    finally:
        node.send_signal(signal.SIGCONT)
    found = [answer(client, key) for key in keys]
    assert set(found) <= {"new", "error"}, "an old value after the pause"
    until(lambda: cluster.is_whole() and cluster.is_settled(), "all positions live")
    assert [answer(cluster.client(), key) for key in keys] == ["new"] * len(keys)


@pytest.mark.timeout(120 * ROUNDS + 300)
def test_an_old_copy_of_the_store_gives_no_wrong_value(run, tmp_path, rng):
    cluster = ByHand(run, tmp_path, nodes=12)
    values = load(cluster)
    old, newest = tmp_path / "old", tmp_path / "newest"
    for _ in range(ROUNDS):
        cluster.stop_coordinator()
        shutil.copy(cluster.store, old)
        cluster.start_coordinator()
        until(cluster.is_settled, "all nodes to register")
        first = cluster.draw_holder(rng)
        second = rng.choice([node for node in range(1, 12) if node != first])
        epochs = cluster.epochs()
        cluster.restart(first)
        until(lambda: cluster.epochs() != epochs and cluster.is_whole() and cluster.is_settled(), "the node's next process")
        cluster.stop_coordinator()
        shutil.move(cluster.store, newest)
        shutil.copy(old, cluster.store)
        cluster.start_coordinator()
        for _ in range(5):
            cluster.restart(second)
            client = cluster.client()
            told = answers(client, rng.sample(sorted(values), 50))
            assert {key: value for key, value in told.items() if value not in (values[key], "error")} == {}
        until(lambda: cluster.says("the store is an old copy"), "the coordinator to say that its store is old")
        command = [BINARY, "status", "--port", str(cluster.port)]
        status = lambda: subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stderr
        # The node that is asked may be told later than others.
        until(lambda: "not the cluster's newest" in status(), "status to say so")
        assert not cluster.says("moves from"), "the coordinator must change nothing"
        told = answers(client, list(values))
        assert {key: value for key, value in told.items() if value not in (values[key], "error")} == {}
        cluster.stop_coordinator()
        shutil.move(newest, cluster.store)
        cluster.start_coordinator()
        cluster.restart(second)
        until(lambda: cluster.is_whole() and cluster.is_settled(), "all positions to be whole again")
        assert {key: client.get(key) for key in values} == values


@pytest.mark.timeout(300)
def test_a_store_that_goes_back_under_a_running_coordinator_ends_it(run, tmp_path, rng):
    cluster = ByHand(run, tmp_path, nodes=6)
    values = load(cluster)
    old, newest = tmp_path / "old", tmp_path / "newest"
    cluster.stop_coordinator()
    shutil.copy(cluster.store, old)
    cluster.start_coordinator()
    until(cluster.is_settled, "all nodes to register")
    epochs = cluster.epochs()
    cluster.restart(cluster.draw_holder(rng))
    until(lambda: cluster.epochs() != epochs and cluster.is_whole() and cluster.is_settled(), "the node's next process")
    # The same file under another name: what is still written to it is kept.
    os.link(cluster.store, newest)
    os.replace(old, cluster.store)
    # Something to commit.
    victim = rng.choice(range(1, 6))
    cluster.restart(victim)
    until(lambda: cluster.coordinator.poll() is not None, "the coordinator to end")
    assert cluster.says("the store went back")
    cluster.start_coordinator()
    until(lambda: cluster.says("the store is an old copy"), "its successor to say that its store is old")
    told = answers(cluster.client(), list(values))
    assert {key: value for key, value in told.items() if value not in (values[key], "error")} == {}
    cluster.stop_coordinator()
    os.replace(newest, cluster.store)
    cluster.start_coordinator()
    # A process that has not served ends when an old store refuses it.
    cluster.restart(victim)
    until(lambda: cluster.is_whole() and cluster.is_settled(), "all positions to be whole again")
    assert answers(cluster.client(), list(values)) == values


@pytest.mark.timeout(300)
def test_a_process_without_a_place_takes_no_command_that_it_would_run_later(run, tmp_path):
    cluster = ByHand(run, tmp_path, nodes=6)
    values = load(cluster)
    cluster.stop_coordinator()
    cluster.restart(3)
    log = cluster.processes[3].log
    until(lambda: "no coordinator answers" in log.read_text(encoding="utf-8"), "the process to wait for its place")
    late = redis.Redis(port=cluster.port + 3, retry=Retry(NoBackoff(), 0), socket_timeout=0.5)
    for key in list(values)[:40]:
        with pytest.raises(redis.ConnectionError):
            late.set(key, "given up")
    client, newer = cluster.client(), {}
    for key in list(values)[:40]:
        try:
            if client.set(key, "newer"):
                newer[key] = "newer"
        except redis.RedisError:
            # Of the node that has ended: nobody can replace it while the coordinator is away.
            pass
    assert newer
    cluster.start_coordinator()
    until(lambda: serves(cluster.port + 3) and cluster.is_whole() and cluster.is_settled(), "the node to have its place")
    told = answers(client, list(values)[:40])
    assert all(told[key] == "newer" for key in newer) and "given up" not in told.values()


@pytest.mark.timeout(300)
def test_a_flipped_bit_in_the_store_ends_no_coordinator_without_a_word_of_the_way_back(run, tmp_path, rng):
    """It starts, since the bit does not matter, or ends and says what to do."""
    address = f"127.0.0.1:{free_base(1)}"
    store = tmp_path / "store"
    settings = f'listen = "{address}"\nstore = "{store}"\nscheme = "4+2"\nnodes = 6\n'
    file = tmp_path / "settings.toml"
    file.write_text(settings, encoding="utf-8")
    subprocess.run([BINARY, "coordinator", "--config", str(file), "--create"], check=True, timeout=TIMEOUT_S)
    sound = store.read_bytes()
    used = [at for at, byte in enumerate(sound) if byte]
    refused = 0
    # In the header and in pages.
    for at in rng.sample(range(320), FLIPS // 2) + rng.sample(used, FLIPS // 2):
        flipped = bytearray(sound)
        flipped[at] ^= 1 << rng.randrange(8)
        store.write_bytes(flipped)
        coordinator = run("coordinator", settings, create=False)
        log = lambda: coordinator.log.read_text(encoding="utf-8")  # pylint: disable=cell-var-from-loop
        until(lambda: coordinator.poll() is not None or "coordinator runs" in log(), "a start or an end")
        if coordinator.poll() is None:
            coordinator.kill()
            coordinator.wait()
            continue
        refused += 1
        assert coordinator.returncode == 1, (at, coordinator.returncode, log())
        assert str(store) in log() and "panicked" not in log(), (at, log())
        # One that goes back to the commit before has no cluster in it.
        assert "--adopt" in log() or "there is no cluster in it" in log(), (at, log())
    print(f"{refused} of {FLIPS} ended the start")
    assert refused > 0


@pytest.mark.timeout(120 * ROUNDS + 300)
def test_a_coordinator_whose_store_is_gone_begins_no_other_cluster(run, tmp_path, rng):
    cluster = ByHand(run, tmp_path, nodes=12)
    values = load(cluster)
    aside = tmp_path / "aside"
    for _ in range(ROUNDS):
        cluster.stop_coordinator()
        shutil.move(cluster.store, aside)
        cluster.start_coordinator()
        assert cluster.coordinator.wait(TIMEOUT_S) != 0
        assert cluster.says("--create"), "the message must say what to do"
        assert not cluster.store.exists(), "no store may be created"
        client = cluster.client()
        assert {key: client.get(key) for key in values} == values
        shutil.move(aside, cluster.store)
        cluster.start_coordinator()
        before = cluster.epochs()
        cluster.restart(cluster.draw_holder(rng))
        until(lambda: cluster.epochs() != before and cluster.is_whole() and cluster.is_settled(), "the node's next process")
        assert {key: client.get(key) for key in values} == values
    file = tmp_path / "again.toml"
    file.write_text(cluster.settings, encoding="utf-8")
    command = [BINARY, "coordinator", "--config", str(file), "--create"]
    cluster.stop_coordinator()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode != 0 and "already" in again.stderr, again
