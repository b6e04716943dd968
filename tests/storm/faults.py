"""The faults of a storm, drawn from a seed, and the orders of an operator meanwhile. At no time are more positions of a
list out than its scheme allows, nor more than two. Before each blow all positions are Live and where they belong, and a
blow hits at most two nodes."""

import contextlib
import os
import random
import signal
import time

from dev_cluster import is_running
from orders import Orders

# Time in seconds for a takeover of real size on a busy machine.
WHOLE_WITHIN_S = 120.0
# Standing values are made again at this rate at least: a log node writes three bytes for each.
STANDING_BYTES_PER_S = 10e6
# States of positions with all their data.
WHOLE = ("live", "stand-in")
CUT = {"loss": 1}


class Faults(Orders):
    """Applies faults ("blows") to a cluster until told to stop."""

    BLOWS = {
        "kill": 3,
        "kill_two": 4,
        "kill_one_then_another": 3,
        "pause": 4,
        "pause_and_kill": 2,
        "kill_again_and_again": 2,
        "kill_coordinator": 1,
        "kill_coordinator_and_node": 2,
        "pause_coordinator": 2,
        "pause_coordinator_and_kill": 3,
        "old_store": 1,
        "drain": 1,
        "shun": 1,
        "drain_and_pause": 1,
        "shun_and_pause": 1,
        "drain_and_kill": 2,
        "shun_and_kill": 2,
        "drain_and_kill_coordinator": 1,
        # Slots keep moving during the blows that follow.
        "move_slots": 5,
    }
    # Blows that need hosts of their own.
    OF_HOSTS = {
        "cut_pair": 4,
        "cut_from_some": 3,
        "cut_off": 2,
        "cut_from_coordinator": 2,
        "cut_and_kill": 3,
        "far_host": 3,
        "lossy_host": 3,
        "bad_network": 3,
        "bad_network_and_kill": 3,
        "lose_host": 3,
        "lose_two_hosts": 2,
    }
    # Blows that are too much for a scheme that covers one loss.
    OF_TWO = {"kill_two", "kill_one_then_another", "pause_and_kill", "cut_and_kill", "lose_two_hosts"}
    # Blows that need one node more than a list has positions, and one parity more than writes need.
    OF_SPARE = {"drain", "shun", "drain_and_pause", "shun_and_pause", "drain_and_kill", "shun_and_kill", "drain_and_kill_coordinator"}

    def __init__(self, cluster, seed, say, shape, only=()):
        super().__init__(seed)
        self.cluster, self.say, self.shape = cluster, say, shape
        self.most = min(shape.quorum, 2)
        self.whole_within_s = WHOLE_WITHIN_S + shape.standing_bytes / shape.data / STANDING_BYTES_PER_S
        self.draw = random.Random(f"{seed}/faults")
        self.paused = set()
        self.counts = {}
        self.has_hosts = hasattr(cluster, "way")
        known = {**self.BLOWS, **(self.OF_HOSTS if self.has_hosts else {})}
        stuck = not shape.has_spare or shape.parity < 2
        never = (self.OF_TWO if self.most < 2 else set()) | (self.OF_SPARE if stuck else set())
        self.blows = {name: weight for name, weight in known.items() if name not in never and (not only or name in only)}
        assert self.blows, f"none of {only} with {shape}"

    def run(self, seconds):
        """Applies blows until the time is over. At the end everything is repaired."""
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                self.wait(self.draw.uniform(0.2, 2.0))
                self.until_whole()
                blow = self.draw.choices(list(self.blows), list(self.blows.values()))[0]
                self.counts[blow] = self.counts.get(blow, 0) + 1
                getattr(self, blow)()
            self.until_slots_rest()
            self.until_whole()
        finally:
            self.wake_all()
            if self.has_hosts:
                self.cluster.heal()

    def until_whole(self):
        began = time.monotonic()
        while not (self.cluster.is_whole() and self.all_serve() and all(map(is_running, self.cluster.pids().values()))):
            if time.monotonic() - began > self.whole_within_s:
                raise AssertionError(f"not all positions are Live {self.whole_within_s:.0f} s after the last blow: {self.cluster.any_status()}")
            time.sleep(0.05)

    @staticmethod
    def wait(seconds):
        """Waits between blows. It is not a wait for a condition."""
        time.sleep(seconds)

    def nodes(self, count):
        """Random nodes, with their process ids."""
        pids = self.cluster.pids()
        return [(node, pids[node]) for node in self.draw.sample(sorted(pids), count)]

    def send(self, what, victims):
        self.say(f"{what} {' and '.join(f'n{node} ({pid})' for node, pid in victims)}")
        for _, pid in victims:
            # A process that was replaced ends by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # Blows.

    def kill(self):
        self.send("kill", self.nodes(1))

    def kill_two(self):
        self.send("kill", self.nodes(2))

    def kill_one_then_another(self):
        one, other = self.nodes(2)
        self.send("kill", [one])
        self.wait(self.draw.expovariate(1 / 0.15))
        # A survivor may have taken over what the first one held. Then its end would be a third loss.
        if self.may_lose(one[0], other[0]):
            self.send("kill then", [other])

    def pause(self):
        self.paused_for(self.nodes(1)[0], lambda: None)

    def pause_and_kill(self):
        sleeper, victim = self.nodes(2)
        self.paused_for(sleeper, lambda: self.send("kill", [victim]))

    def paused_for(self, sleeper, then):
        # Shorter than detection; between detection and the end of a lease; longer than both.
        seconds = self.draw.choice([self.draw.uniform(0.05, 0.8), self.draw.uniform(1.0, 2.3), self.draw.uniform(2.3, 5)])
        node, pid = sleeper
        self.say(f"pause n{node} ({pid}) for {seconds:.2f} s")
        first = self.draw.uniform(0, seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self.paused.add(pid)
        self.wait(first)
        then()
        self.wait(seconds - first)
        self.wake(pid)

    def wake(self, pid):
        self.paused.discard(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def wake_all(self):
        for pid in list(self.paused):
            self.wake(pid)

    def kill_again_and_again(self):
        """Kills the same node several times, each time as soon as its next process runs: only its positions are out."""
        node, pid = self.nodes(1)[0]
        for _ in range(self.draw.randrange(2, 5)):
            self.send("kill", [(node, pid)])
            before = pid
            deadline = time.monotonic() + self.whole_within_s
            while pid == before and time.monotonic() < deadline:
                pid = self.cluster.pids().get(node, before)
            if pid == before or not self.may_lose(node):
                return
            self.wait(self.draw.expovariate(1 / 0.1))

    def may_lose(self, *nodes):
        """Whether every list can lose these nodes in addition."""
        status = self.cluster.any_status()
        if not status:
            return False
        out = lambda position: position["state"] not in WHOLE or position["node"] in nodes
        return all(sum(map(out, entry["positions"])) <= self.most for entry in status["lists"])

    def kill_coordinator(self):
        self.say("kill the coordinator")
        self.cluster.kill_coordinator()

    def kill_coordinator_and_node(self):
        victims = self.nodes(self.draw.randint(1, self.most))
        self.kill_coordinator()
        self.send("kill", victims)

    def pause_coordinator(self, then=lambda: None):
        # Short: no component notices. Medium: agents look for another coordinator after 2 s. Long: leases have ended.
        seconds = self.draw.choice([self.draw.uniform(0.5, 2), self.draw.uniform(2, 8), self.draw.uniform(8, 30)])
        pid = self.cluster.coordinator()
        if pid is None:
            return
        self.say(f"pause the coordinator ({pid}) for {seconds:.2f} s")
        # Nodes may be hit while it is stopped, or just after.
        first = self.draw.uniform(0, seconds + 3)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self.paused.add(pid)
        self.wait(min(first, seconds))
        if first < seconds:
            then()
            self.wait(seconds - first)
        self.wake(pid)
        if first >= seconds:
            self.wait(first - seconds)
            then()

    def pause_coordinator_and_kill(self):
        # Chosen before, because a stopped coordinator gives no status.
        victims = self.nodes(self.draw.randint(1, self.most))
        self.pause_coordinator(lambda: self.send("kill", victims))

    def old_store(self):
        """The coordinator gets an older copy of its store. It must notice, change nothing and report it, until it has
        the newest store again."""
        old, epochs = self.cluster.read_store(), self.epochs()
        pids = self.cluster.pids()
        victim = self.draw.choice(sorted(self.holders() & set(pids)))
        self.send("kill", [(victim, pids[victim])])
        # The end of a node that holds positions changes its lists. Before that, the copy equals the store.
        deadline = time.monotonic() + self.whole_within_s
        while sum(self.epochs()) <= sum(epochs):
            if time.monotonic() > deadline:
                raise AssertionError(f"n{victim} has ended and no list has changed: {self.cluster.any_status()}")
            time.sleep(0.02)
        self.until_whole()
        self.say("the coordinator's store is an old copy")
        newest = self.cluster.replace_store(old)
        began = time.monotonic()
        while not self.store_is_refused():
            if time.monotonic() - began > self.whole_within_s:
                raise AssertionError(f"an old store is not refused: {self.cluster.order(0, 'status')}")
            time.sleep(0.05)
        self.say("the coordinator refuses it; the newest one comes back")
        self.cluster.replace_store(newest)

    def epochs(self):
        status = self.cluster.any_status()
        return [entry["epoch"] for entry in status["lists"]] if status else []

    def holders(self):
        """Nodes that hold positions."""
        status = self.cluster.any_status()
        return {position["node"] for entry in status["lists"] for position in entry["positions"]} if status else set()

    def store_is_refused(self):
        # Nodes that are refused say why.
        return any("not the cluster's newest" in self.cluster.order(node, "status") for node in range(self.shape.nodes))

    # Traffic between two hosts is dropped, delayed or partly lost, in one direction or both. `None` is the coordinator.

    def cut_pair(self):
        (one, _), (other, _) = self.nodes(2)
        self.spoil([(one, other)], CUT)

    def cut_from_some(self):
        (one, _), *others = self.nodes(self.draw.randrange(3, 5))
        self.spoil([(one, other) for other, _ in others], CUT)

    def cut_off(self):
        self.spoil(self.all_of(self.nodes(1)[0][0]), CUT)

    def cut_from_coordinator(self):
        (one, _), = self.nodes(1)
        self.spoil([(one, None)], CUT)

    def cut_and_kill(self):
        one, other = self.nodes(2)
        self.spoil([(one[0], other[0])], CUT, lambda: self.send("kill", [self.draw.choice([one, other])]))

    def far_host(self):
        delay = self.draw.choice([0.005, 0.02, 0.1])
        self.spoil(self.all_of(self.nodes(1)[0][0]), {"delay": delay, "jitter": delay})

    def lossy_host(self):
        self.spoil(self.all_of(self.nodes(1)[0][0]), {"loss": self.draw.choice([0.01, 0.05, 0.2])})

    def bad_network(self):
        self.spoil(self.everything(), self.mediocre())

    def bad_network_and_kill(self):
        victims = self.nodes(self.draw.randint(1, self.most))
        self.spoil(self.everything(), self.mediocre(), lambda: self.send("kill", victims))

    def mediocre(self):
        # Heartbeats and leases must still arrive in time. With TCP's slow start these values are bad enough.
        return {"delay": self.draw.uniform(0, 0.01), "jitter": self.draw.uniform(0, 0.02), "loss": self.draw.choice([0, 0.005, 0.02])}

    def all_of(self, one):
        """One node, paired with all others."""
        return [(one, other) for other in [*self.cluster.pids(), None] if other != one]

    def everything(self):
        names = [*self.cluster.pids(), None]
        return [(one, other) for n, one in enumerate(names) for other in names[:n]]

    def spoil(self, pairs, what, then=lambda: None):
        """Disturbs these links for a while, in one direction or both."""
        seconds = self.draw.choice([self.draw.uniform(0.1, 1), self.draw.uniform(1, 6)])
        ways = self.draw.choice(["there", "back", "both ways"])
        name = lambda node: "coordinator" if node is None else f"n{node}"
        names = [f"{name(one)}-{name(other)}" for one, other in pairs]
        how = " ".join(f"{what} {amount:.3g}" for what, amount in what.items())
        self.say(f"{how}: {' '.join(names) if len(names) < 10 else 'all links'} {ways} for {seconds:.2f} s")
        for one, other in pairs:
            if ways != "back":
                self.cluster.way(one, other, **what)
            if ways != "there":
                self.cluster.way(other, one, **what)
        first = self.draw.uniform(0, seconds)
        self.wait(first)
        then()
        self.wait(seconds - first)
        self.cluster.heal()

    # Hosts that stay away: other nodes take over, or stand in where no others are free.

    def lose_host(self):
        self.lose_hosts(1)

    def lose_two_hosts(self):
        self.lose_hosts(2)

    def lose_hosts(self, count):
        victims, seconds = self.nodes(count), self.draw.uniform(10, 30)
        ends = time.monotonic() + seconds
        self.say(f"for {seconds:.1f} s there is no {' and no '.join(f'n{node}' for node, _ in victims)}")
        for node, _ in victims:
            self.cluster.keep_away(node, seconds)
        self.send("kill", victims)
        lost = {node for node, _ in victims}
        # What the others hold for the lost nodes counts like the lost positions did: one more node may die.
        while time.monotonic() < ends and not self.is_whole_without(lost):
            self.wait(0.2)
        self.wait(self.draw.uniform(0, 3))
        left = [node for node in self.cluster.pids() if node not in lost]
        another = self.draw.choice(left)
        if time.monotonic() < ends and self.is_whole_without(lost) and self.may_lose(another):
            self.send("kill then", [(another, self.cluster.pids()[another])])
        self.wait(max(0, ends - time.monotonic()))

    def is_whole_without(self, lost):
        status = self.cluster.any_status()
        fine = lambda position: position["state"] in WHOLE and position["node"] not in lost
        return status is not None and all(fine(p) for entry in status["lists"] for p in entry["positions"])
