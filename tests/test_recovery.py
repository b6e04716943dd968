"""An operator's recovery tasks (docs/operate.md): lost lists begin again, machines that are off count as ended,
settings change. Each order first reports what it would lose, and changes nothing until it is confirmed."""

import json
import shutil
import signal
import subprocess

import pytest
import redis

from conftest import BINARY, TIMEOUT_S, free_base, serves, until
from test_bad_places import fill, small_disk  # noqa: F401  pylint: disable=unused-import
from test_coordinator_trouble import ByHand, answers, load


class Recovered(ByHand):
    """A cluster whose coordinator is given orders."""

    def order(self, *words):
        """Gives an order. Returns its output and whether it was refused."""
        return paritas(*words, "--coordinator", self.address)

    def ask_coordinator(self):
        done = self.order("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def lists(self):
        return {entry["id"]: entry for entry in until(self.ask_coordinator, "a status")["lists"]}

    def kill(self, *nodes):
        """Kills all of them at once: a busy machine may take long to end one."""
        with self.coordinator_stands_still():
            for node in nodes:
                self.processes[node].kill()
            for node in nodes:
                self.processes[node].wait()

    def renew(self, node):
        """Replaces the node's process by a new one."""
        before = self.epochs()
        self.restart(node)
        until(lambda: self.epochs() != before and self.is_whole() and self.is_settled(), "the node's next process")

    def fence(self, *nodes):
        """Says that the processes of these nodes have ended, as soon as the coordinator believes it."""
        until(lambda: self.order("fence", *map(str, nodes), "--yes").returncode == 0, "all of them to be silent")

    def begin(self, *nodes):
        for node in nodes:
            self.processes[node] = self.start_node(node)


def paritas(*words):
    return subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def words(status):
    return "\n".join(status["coordinator"])


def test_a_whole_cluster_that_was_off_begins_again_by_order_and_is_restored(run, tmp_path):
    cluster = Recovered(run, tmp_path, nodes=4, scheme="2+1")
    values = load(cluster)
    snapshot = tmp_path / "snapshot.rdb"
    assert paritas("snapshot", str(snapshot), "--port", str(cluster.port)).returncode == 0
    none = cluster.order("reset-list", "--lost", "--yes")
    assert none.returncode != 0 and "no list is lost" in none.stderr
    # All nodes lose power. No end is certified, so each new process waits.
    cluster.kill(*range(4))
    cluster.stop_coordinator()
    cluster.start_coordinator()
    cluster.begin(*range(4))
    cluster.fence(*range(4))
    until(lambda: all(entry["lost"] for entry in cluster.lists().values()), "lost lists")
    status = cluster.ask_coordinator()
    assert status["trouble"]["lost"] == sorted(cluster.lists()) and "paritas reset-list --lost" in words(status)
    before = cluster.lists()
    told = cluster.order("reset-list", "--lost")
    assert told.returncode == 0 and "list 0: of its 2 data positions 0 can still be read" in told.stdout, told
    assert "with --yes to do it" in told.stdout and cluster.lists() == before, "nothing is changed"
    wrong = cluster.order("reset-list", "77", "--yes")
    assert wrong.returncode != 0 and "list 77 is not lost" in wrong.stderr
    done = cluster.order("reset-list", "--lost", "--yes")
    assert done.returncode == 0 and "done" in done.stdout, done
    until(lambda: not any(entry["lost"] for entry in cluster.lists().values()), "lists that begin again")
    until(lambda: all(serves(cluster.port + node) for node in range(4)), "nodes to serve")
    assert cluster.client().dbsize() == 0
    assert paritas("restore", str(snapshot), "--port", str(cluster.port)).returncode == 0
    client = cluster.client()
    assert {key: client.get(key) for key in values} == values


def test_machines_that_are_off_count_as_ended_once_the_operator_says_so(run, tmp_path):
    cluster = Recovered(run, tmp_path, nodes=12, scheme="4+2")
    values = load(cluster)
    refused = cluster.order("fence", "3", "--yes")
    assert refused.returncode != 0 and "n3 runs" in refused.stderr and "paritas drain 3" in refused.stderr, refused
    # Two nodes of each list. More failure domains than m, and than a quarter, are silent: this looks like a broken
    # network.
    off = [2, 5, 8, 11]
    cluster.kill(*off)
    many = until(lambda: (cluster.ask_coordinator() or {}).get("trouble", {}).get("silent_domains"), "a hold")
    assert many == 4

    def is_told():
        status = cluster.ask_coordinator()
        return status and "paritas fence" in words(status) and {s["node"] for s in status["trouble"]["silent"]} == set(off)

    until(is_told, "words about them")
    before = cluster.lists()
    # Refused while a peer still hears one of them.
    dry_run = lambda: cluster.order("fence", *map(str, off))
    told = until(lambda: (said := dry_run()).returncode == 0 and said, "no peer to hear them")
    assert "n5, process" in told.stdout and "with --yes to do it" in told.stdout, told
    assert "no list is lost by it" in told.stdout and cluster.lists() == before, told
    assert cluster.order("fence", *map(str, off), "--yes").returncode == 0
    until(lambda: not set(off) & {p["node"] for entry in cluster.lists().values() for p in entry["positions"]}, "others")
    client = cluster.client()
    until(lambda: answers(client, list(values)) == values, "every value")
    # The machines are switched on again.
    cluster.begin(*off)
    until(lambda: cluster.is_whole() and cluster.is_settled(), "all positions live")
    assert answers(client, list(values)) == values


def test_more_machines_than_the_scheme_covers_are_off(run, tmp_path):
    cluster = Recovered(run, tmp_path, nodes=3, scheme="2+1")
    values = load(cluster)
    cluster.kill(1, 2)
    trouble = until(lambda: (cluster.ask_coordinator() or {}).get("trouble"), "a status")
    until(lambda: cluster.ask_coordinator()["trouble"]["unlinked"] == [1, 2], "silence")
    assert "fewer than 2 of the nodes" in words(cluster.ask_coordinator()) and not trouble["lost"]
    until(lambda: cluster.order("fence", "1", "2").returncode == 0, "both to be silent for the suspicion time")
    told = cluster.order("fence", "1", "2")
    assert "would be lost" in told.stdout and not any(entry["lost"] for entry in cluster.lists().values()), told
    assert cluster.order("fence", "1", "2", "--yes").returncode == 0
    assert all(entry["lost"] for entry in cluster.lists().values())
    told = answers(cluster.client(), list(values))
    left = {key: value for key, value in told.items() if value != "error"}
    assert left and all(values[key] == value for key, value in left.items()), "surviving keys must be readable"
    told = cluster.order("reset-list", "--lost")
    assert "can still be read (n0)" in told.stdout, told
    cluster.begin(1, 2)
    assert cluster.order("reset-list", "--lost", "--yes").returncode == 0
    until(cluster.is_whole, "all positions live")
    client = cluster.client()
    until(lambda: set(answers(client, list(values)).values()) == {None}, "an empty cluster")


def test_the_coordinator_itself_can_be_asked(run, tmp_path):
    cluster = Recovered(run, tmp_path, nodes=2, scheme="1+1")
    status = paritas("status", "--coordinator", cluster.address)
    assert status.returncode == 0 and "lists, " in status.stdout, status
    nobody = paritas("set", "--coordinator", f"127.0.0.1:{cluster.port}")
    assert nobody.returncode != 0 and str(cluster.port) in nobody.stderr


def test_settings_change_while_the_cluster_lives_and_outlive_its_coordinator(run, tmp_path):
    cluster = Recovered(run, tmp_path, nodes=3, scheme="2+1")
    assert cluster.order("set").stdout.startswith("suspicion_ms=1000\nlost_policy=stop\n")
    for setting, says in [
        ("suspicion_ms=10", "at least 500"),
        ("suspicion_ms=soon", "milliseconds"),
        ("lost_policy=maybe", "stop or reset"),
        ("lease_ms=9", "cannot be changed"),
        ("suspicion_ms", "NAME=VALUE"),
    ]:
        wrong = cluster.order("set", setting)
        assert wrong.returncode != 0 and says in wrong.stderr, (setting, wrong)
    assert cluster.order("set").stdout.startswith("suspicion_ms=1000\nlost_policy=stop\n")
    assert cluster.order("set", "suspicion_ms=2500", "lost_policy=reset").returncode == 0
    told = [process.log for process in cluster.processes]
    until(lambda: all("suspicion_ms=2500" in log.read_text(encoding="utf-8") for log in told), "nodes to be told")
    cluster.stop_coordinator()
    cluster.settings += "suspicion_ms = 700\n"
    cluster.start_coordinator()
    until(cluster.ask_coordinator, "the coordinator")
    assert cluster.order("set").stdout.startswith("suspicion_ms=2500\nlost_policy=reset\n")
    assert cluster.says("suspicion_ms = 700") and cluster.says("This cluster has 2500"), "the log says that the store wins"
    # All nodes at once: by the new policy the lists begin again.
    cluster.kill(0, 1, 2)
    cluster.begin(0, 1, 2)
    cluster.fence(0, 1, 2)
    until(lambda: cluster.is_whole() and all(entry["reset"] for entry in cluster.lists().values()), "lists that began again")


class Adopted(Recovered):
    """A cluster whose coordinator's store is lost, or is an older copy."""

    def adopt(self, *options):
        """Starts a coordinator that adopts the cluster."""
        file = self.store.with_name(f"adopt-{len(self.coordinators)}.toml")
        file.write_text(self.settings, encoding="utf-8")
        self.coordinators.append(file)
        log = open(file.with_suffix(".log"), "w", encoding="utf-8")
        command = [BINARY, "coordinator", "--config", str(file), "--adopt", *options]
        self.coordinator = subprocess.Popen(command, stdout=log, stderr=log)
        self.coordinator.log = file.with_suffix(".log")
        self.started.append(self.coordinator)

    def lose_store(self):
        self.stop_coordinator()
        self.store.unlink()

    def is_adopted(self):
        return self.says("coordinator runs") and self.is_whole() and self.is_settled()


@pytest.fixture
def make(run, tmp_path):
    started = []

    def start(**options):
        cluster = Adopted(run, tmp_path, **options)
        cluster.coordinators, cluster.started = [], started
        return cluster

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_lost_store_is_made_anew_from_what_the_nodes_know(make):
    # A process that stands still for a while keeps its positions.
    cluster = make(nodes=6, scheme="4+2", more="suspicion_ms = 3000\n")
    values = load(cluster)
    cluster.renew(5)
    before, epochs = cluster.holders(), cluster.epochs()
    cluster.lose_store()
    cluster.adopt()
    until(cluster.is_adopted, "the cluster to have a coordinator again")
    assert cluster.holders() == before and all(cluster.epochs()[n] > epoch for n, epoch in epochs.items())
    client = cluster.client()
    assert {key: client.get(key) for key in values} == values
    # It works as any coordinator does, after a node's death and after its own.
    cluster.renew(3)
    cluster.stop_coordinator()
    cluster.start_coordinator()
    until(cluster.is_settled, "all nodes to register")
    assert {key: client.get(key) for key in values} == values


def test_a_node_that_is_missing_is_waited_for_or_done_without(make):
    cluster = make(nodes=6, scheme="4+2")
    values = load(cluster)
    cluster.lose_store()
    cluster.kill(4)
    cluster.adopt()
    until(lambda: cluster.says("waits for n4: "), "the coordinator to say who is missing")
    asked = cluster.order("status")
    assert asked.returncode == 0 and "waits for n4: " in asked.stdout, asked
    assert "add their numbers to --without" in asked.stdout and "no list would be lost as far as is known" in asked.stdout, asked
    refused = cluster.order("fence", "4", "--yes")
    assert refused.returncode != 0 and "orders are not accepted yet" in refused.stderr
    client = cluster.client()
    told = answers(client, list(values))
    assert all(value in (values[key], "error") for key, value in told.items())
    cluster.stop_coordinator()
    # A running process does not count as off.
    cluster.adopt("--without", "3,4")
    assert cluster.coordinator.wait(TIMEOUT_S) != 0
    assert cluster.says("--without 3 says that its machine is off or its process has ended, and process")
    cluster.adopt("--without", "4")
    until(lambda: cluster.says("n4 counts as ended") and cluster.says("no list is lost by it"), "what that would lose")
    assert not cluster.says("coordinator runs")
    cluster.stop_coordinator()
    cluster.adopt("--without", "4", "--yes")
    until(lambda: cluster.says("coordinator runs"), "a store")
    until(lambda: answers(client, list(values)) == values, "every value")
    assert cluster.says("processes of n4 count as ended")
    cluster.begin(4)
    until(cluster.is_adopted, "all positions live")
    assert answers(client, list(values)) == values


def test_the_next_process_of_a_dead_node_is_enough_for_adoption_once_the_operator_attests_the_end(make):
    cluster = make(nodes=3, scheme="2+1")
    values = load(cluster)
    cluster.lose_store()
    cluster.restart(2)
    cluster.adopt()
    # The former process could still run. Nobody has waited for it but this test.
    until(lambda: cluster.says("nobody has certified that the silent one has ended"), "the coordinator to say so")
    assert "add their numbers to --without" in cluster.order("status").stdout and not cluster.says("coordinator runs")
    cluster.stop_coordinator()
    cluster.adopt("--without", "2")
    until(lambda: cluster.says("the silent process of n2 counts as ended") and cluster.says("no list is lost by it"), "what that would lose")
    assert not cluster.says("coordinator runs")
    cluster.stop_coordinator()
    cluster.adopt("--without", "2", "--yes")
    until(cluster.is_adopted, "all positions live")
    assert cluster.says("n2 run as new processes")
    client = cluster.client()
    assert answers(client, list(values)) == values


def test_an_old_copy_of_the_store_is_adopted_too(make, tmp_path):
    cluster = make(nodes=6, scheme="4+2")
    values = load(cluster)
    old = tmp_path / "old"
    cluster.stop_coordinator()
    shutil.copy(cluster.store, old)
    cluster.start_coordinator()
    until(cluster.is_settled, "all nodes to register")
    cluster.renew(2)
    cluster.stop_coordinator()
    shutil.copy(old, cluster.store)
    cluster.start_coordinator()
    behind = until(lambda: (cluster.ask_coordinator() or {}).get("trouble", {}).get("behind") is not None, "behind")
    assert behind and "--adopt" in words(cluster.ask_coordinator())
    refused = cluster.order("fence", "5", "--yes")
    assert refused.returncode != 0
    cluster.stop_coordinator()
    cluster.adopt()
    until(cluster.is_adopted, "the cluster to have a coordinator again")
    client = cluster.client()
    assert {key: client.get(key) for key in values} == values


def test_a_list_of_which_nobody_is_left_is_lost_and_the_others_are_not(make):
    cluster = make(nodes=6, scheme="1+1")
    values = load(cluster)
    pairs = [{p["node"] for p in entry["positions"]} for entry in cluster.lists().values()]
    gone = next(pair for pair in pairs if 0 not in pair)
    cluster.lose_store()
    cluster.kill(*gone)
    cluster.adopt("--without", ",".join(map(str, gone)), "--yes")
    until(lambda: cluster.says("coordinator runs"), "a store")
    lost = until(lambda: (cluster.ask_coordinator() or {}).get("trouble", {}).get("lost"), "a lost list")
    assert 0 < len(lost) < len(pairs)
    cluster.begin(*gone)
    # Orders are refused until the nodes have confirmed that the store is the newest.
    until(lambda: cluster.order("reset-list", *map(str, lost), "--yes").returncode == 0, "the lost lists to be reset")
    until(cluster.is_adopted, "all positions live")
    told = answers(cluster.client(), list(values))
    kept = {key: value for key, value in told.items() if value is not None}
    assert kept and all(values[key] == value for key, value in kept.items())


def test_two_histories_are_not_adopted(make, tmp_path):
    cluster = make(nodes=3, scheme="2+1")
    old = tmp_path / "old"
    cluster.stop_coordinator()
    shutil.copy(cluster.store, old)
    cluster.start_coordinator()
    until(cluster.is_settled, "all nodes to register")
    cluster.renew(2)
    # The old copy also makes decisions, with new processes only: a second history.
    cluster.stop_coordinator()
    newest = tmp_path / "newest"
    shutil.copy(cluster.store, newest)
    shutil.copy(old, cluster.store)
    cluster.kill(0, 1, 2)
    cluster.start_coordinator()
    cluster.begin(0, 1, 2)
    cluster.fence(0, 1, 2)
    until(lambda: any(entry["lost"] for entry in cluster.lists().values()), "other decisions")
    begun = {node: cluster.processes[node].pid for node in (0, 1, 2)}
    until(lambda: {node["id"]: node["pid"] for node in (cluster.ask_coordinator() or {"nodes": []})["nodes"]} == begun, "the new processes to register")
    cluster.stop_coordinator()
    shutil.copy(newest, cluster.store)
    cluster.adopt()
    assert cluster.coordinator.wait(TIMEOUT_S) != 0
    assert cluster.says("the store has another history of list") and cluster.says("Move the store's file away")


def test_a_store_that_cannot_be_used_is_refused_with_what_to_do(make, tmp_path):
    cluster = make(nodes=3, scheme="2+1")
    values = load(cluster)
    store = cluster.store.read_bytes()
    # Two coordinators on one store.
    file = tmp_path / "second.toml"
    elsewhere = f"127.0.0.1:{cluster.port + 19_999}"
    file.write_text(cluster.settings.replace(cluster.address, elsewhere), encoding="utf-8")
    for adopt in [(), ("--adopt",)]:
        second = paritas("coordinator", "--config", str(file), *adopt)
        assert second.returncode != 0 and str(cluster.store) in second.stderr, second
        assert "already open" in second.stderr.lower(), second
    # With the settings of another cluster, and without any known process.
    cluster.lose_store()
    settings = cluster.settings
    cluster.settings = settings.replace("nodes = 3", "nodes = 4")
    cluster.adopt()
    until(lambda: cluster.coordinator.poll() is not None or cluster.says("waits for"), "an answer")
    until(lambda: cluster.coordinator.poll() is not None, "an end")
    assert cluster.says("another nodes, log_nodes, domains or memory"), cluster.coordinator.log.read_text(encoding="utf-8")
    # With a file that is not a store.
    cluster.settings = settings
    cluster.store.write_bytes(b"no store at all" * 1000)
    cluster.adopt()
    assert cluster.coordinator.wait(TIMEOUT_S) != 0 and cluster.says(str(cluster.store))
    # With the store of another cluster.
    cluster.store.unlink()
    made = tmp_path / "made.toml"
    made.write_text(settings, encoding="utf-8")
    assert paritas("coordinator", "--config", str(made), "--create").returncode == 0
    cluster.adopt()
    until(lambda: cluster.says("is of cluster") and cluster.says("not of the one in this store"), "strangers")
    cluster.stop_coordinator()
    client = cluster.client()
    assert {key: client.get(key) for key in values} == values, "the nodes must serve"
    cluster.store.write_bytes(store)
    cluster.start_coordinator()
    until(cluster.is_settled, "the right one")


def test_a_store_on_a_disk_that_is_full_or_read_only_is_refused(make, small_disk):  # noqa: F811
    cluster = make(nodes=3, scheme="2+1")
    values = load(cluster)
    cluster.lose_store()
    settings = cluster.settings
    store = f"{small_disk}/store"
    cluster.settings = settings.replace(str(cluster.store), store)
    ballast = fill(small_disk)
    cluster.adopt()
    assert cluster.coordinator.wait(TIMEOUT_S) != 0
    assert cluster.says("No space left on device") and cluster.says(store), cluster.coordinator.log.read_text()
    client = cluster.client()
    assert {key: client.get(key) for key in values} == values
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    cluster.adopt()
    assert cluster.coordinator.wait(TIMEOUT_S) != 0 and cluster.says("Read-only"), cluster.coordinator.log.read_text()
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    cluster.adopt()
    until(cluster.is_adopted, "a coordinator once the disk has free space")
    assert {key: client.get(key) for key in values} == values
    cluster.stop_coordinator()


def test_a_process_with_another_s_id_waits_and_one_that_was_fenced_ends(make, run):
    cluster = make(nodes=4, scheme="2+1")
    settings = f'id = 3\nport = {{}}\nmemory = "64mb"\ncoordinator = ["{cluster.address}"]\n'
    second = run("node", settings.format(free_base(1)))
    until(lambda: "another process with this node's id" in second.log.read_text(encoding="utf-8"), "words about the first")
    assert second.poll() is None and cluster.is_whole()
    second.kill()
    second.wait()
    # Its machine is declared off; then the process continues as before.
    cluster.processes[3].send_signal(signal.SIGSTOP)
    until(lambda: cluster.order("fence", "3", "--yes").returncode == 0, "its silence")
    cluster.processes[3].send_signal(signal.SIGCONT)
    assert cluster.processes[3].wait(TIMEOUT_S) != 0
    assert "this incarnation of the node has ended" in cluster.processes[3].log.read_text(encoding="utf-8")
    cluster.begin(3)
    until(lambda: cluster.is_whole() and cluster.is_settled(), "its next process")
