"""What an operator does at night (docs/operate.md): lost lists begin again, machines that are off count as ended, settings
change. Each order says first what it would lose, and changes nothing until it is confirmed."""

import json
import shutil
import subprocess

import pytest
import redis

from conftest import BINARY, PATIENCE, serves, until
from test_coordinator_trouble import ByHand, answers, load


class Recovered(ByHand):
    """A cluster whose coordinator is given orders."""

    def order(self, *words):
        """What is said, and whether it was refused."""
        return paritas(*words, "--coordinator", self.address)

    def ask_coordinator(self):
        done = self.order("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def lists(self):
        return {entry["id"]: entry for entry in until(self.ask_coordinator, "a status")["lists"]}

    def kill(self, *nodes):
        for node in nodes:
            self.processes[node].kill()
            self.processes[node].wait()

    def begin(self, *nodes):
        for node in nodes:
            self.processes[node] = self.start_node(node)


def paritas(*words):
    return subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)


def words(status):
    return "\n".join(status["coordinator"])


def test_a_whole_cluster_that_was_off_begins_again_by_order_and_is_restored(run, tmp_path):
    cluster = Recovered(run, tmp_path, nodes=4, scheme="2+1")
    values = load(cluster)
    snapshot = tmp_path / "snapshot.rdb"
    assert paritas("snapshot", str(snapshot), "--port", str(cluster.port)).returncode == 0
    none = cluster.order("reset-list", "--lost", "--yes")
    assert none.returncode != 0 and "no list is lost" in none.stderr
    # The power of everything. Nobody certifies an end: the next processes end those before.
    cluster.kill(*range(4))
    cluster.stop_coordinator()
    cluster.start_coordinator()
    cluster.begin(*range(4))
    until(lambda: all(entry["lost"] for entry in cluster.lists().values()), "lost lists")
    status = cluster.ask_coordinator()
    assert status["trouble"]["lost"] == sorted(cluster.lists()) and "paritas reset-list --lost" in words(status)
    before = cluster.lists()
    told = cluster.order("reset-list", "--lost")
    assert told.returncode == 0 and "list 0: of its 2 data positions 0 can still be read" in told.stdout, told
    assert "--yes does it" in told.stdout and cluster.lists() == before, "nothing is changed"
    wrong = cluster.order("reset-list", "77", "--yes")
    assert wrong.returncode != 0 and "list 77 is not lost" in wrong.stderr
    done = cluster.order("reset-list", "--lost", "--yes")
    assert done.returncode == 0 and "done" in done.stdout, done
    assert not any(entry["lost"] for entry in cluster.lists().values())
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
    # Two of each list. More failure domains at once than m, and than a quarter: rather a broken network.
    off = [2, 5, 8, 11]
    cluster.kill(*off)
    many = until(lambda: (cluster.ask_coordinator() or {}).get("trouble", {}).get("silent_domains"), "a hold")
    assert many == 4
    status = cluster.ask_coordinator()
    assert "paritas fence" in words(status) and {s["node"] for s in status["trouble"]["silent"]} == set(off)
    before = cluster.lists()
    told = cluster.order("fence", *map(str, off))
    assert told.returncode == 0 and "n5, process" in told.stdout and "--yes does it" in told.stdout, told
    assert "no list is lost by it" in told.stdout and cluster.lists() == before, told
    assert cluster.order("fence", *map(str, off), "--yes").returncode == 0
    until(lambda: not set(off) & {p["node"] for entry in cluster.lists().values() for p in entry["positions"]}, "others")
    client = cluster.client()
    until(lambda: answers(client, list(values)) == values, "every value")
    # The machines are on again.
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
    assert left and all(values[key] == value for key, value in left.items()), "what is left can be read"
    told = cluster.order("reset-list", "--lost")
    assert "can still be read (n0)" in told.stdout, told
    cluster.begin(1, 2)
    assert cluster.order("reset-list", "--lost", "--yes").returncode == 0
    until(cluster.is_whole, "all positions live")
    client = cluster.client()
    until(lambda: set(answers(client, list(values)).values()) == {None}, "an empty cluster")


def test_orders_are_taken_on_the_coordinator_s_own_machine_only(run, tmp_path):
    cluster = Recovered(run, tmp_path, nodes=2, scheme="1+1")
    status = paritas("status", "--coordinator", cluster.address)
    assert status.returncode == 0 and "2 lists" in status.stdout or "lists" in status.stdout, status
    nobody = paritas("set", "--coordinator", f"127.0.0.1:{cluster.port}")
    assert nobody.returncode != 0 and str(cluster.port) in nobody.stderr


def test_settings_change_while_the_cluster_lives_and_outlive_its_coordinator(run, tmp_path):
    cluster = Recovered(run, tmp_path, nodes=3, scheme="2+1")
    assert cluster.order("set").stdout == "suspicion_ms=1000\nlost_policy=stop\n"
    for setting, says in [
        ("suspicion_ms=10", "at least 500"),
        ("suspicion_ms=soon", "milliseconds"),
        ("lost_policy=maybe", "stop or reset"),
        ("lease_ms=9", "cannot be changed"),
        ("suspicion_ms", "NAME=VALUE"),
    ]:
        wrong = cluster.order("set", setting)
        assert wrong.returncode != 0 and says in wrong.stderr, (setting, wrong)
    assert cluster.order("set").stdout == "suspicion_ms=1000\nlost_policy=stop\n"
    assert cluster.order("set", "suspicion_ms=2500", "lost_policy=reset").returncode == 0
    told = [process.log for process in cluster.processes]
    until(lambda: all("suspicion_ms=2500" in log.read_text(encoding="utf-8") for log in told), "nodes to be told")
    cluster.stop_coordinator()
    cluster.settings += "suspicion_ms = 700\n"
    cluster.start_coordinator()
    until(cluster.ask_coordinator, "the coordinator")
    assert cluster.order("set").stdout == "suspicion_ms=2500\nlost_policy=reset\n"
    assert cluster.says("suspicion_ms = 700") and cluster.says("this one has 2500"), "the store wins, and the log says so"
    # All at once: by the new policy the lists begin again.
    cluster.kill(0, 1, 2)
    cluster.begin(0, 1, 2)
    until(lambda: cluster.is_whole() and all(entry["reset"] for entry in cluster.lists().values()), "lists that began again")
