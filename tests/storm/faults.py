"""What goes wrong in a storm, drawn from a seed. Never more than two positions of a list are out at a time: before each
blow all positions are Live, and a blow hits at most two nodes."""

import os
import random
import signal
import time

from dev_cluster import is_running

# A takeover of real size on a busy machine.
WHOLE_WITHIN = 120.0


class Faults:
    """Deals blows to a cluster until told to stop."""

    BLOWS = {
        "kill": 3,
        "kill_two": 4,
        "kill_one_then_another": 3,
        "pause": 4,
        "pause_and_kill": 2,
        "kill_again_and_again": 2,
        "kill_coordinator": 1,
        "kill_coordinator_and_node": 2,
    }
    # These need hosts of their own.
    CUTS = {"cut_pair": 4, "cut_from_some": 3, "cut_off": 2, "cut_from_coordinator": 2, "cut_and_kill": 3}

    def __init__(self, cluster, seed, say, only=()):
        self.cluster, self.say = cluster, say
        self.draw = random.Random(f"{seed}/faults")
        self.paused = set()
        self.counts = {}
        self.cuts_are_possible = hasattr(cluster, "cut")
        known = {**self.BLOWS, **(self.CUTS if self.cuts_are_possible else {})}
        self.blows = {name: weight for name, weight in known.items() if not only or name in only}

    def run(self, seconds):
        """Blows until the time is over; at the end everything is well again."""
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                self.wait(self.draw.uniform(0.2, 2.0))
                self.until_whole()
                blow = self.draw.choices(list(self.blows), list(self.blows.values()))[0]
                self.counts[blow] = self.counts.get(blow, 0) + 1
                getattr(self, blow)()
            self.until_whole()
        finally:
            self.wake_all()
            if self.cuts_are_possible:
                self.cluster.heal()

    def until_whole(self):
        began = time.monotonic()
        while not (self.cluster.is_whole() and all(map(is_running, self.cluster.pids().values()))):
            if time.monotonic() - began > WHOLE_WITHIN:
                raise AssertionError(f"not all positions are Live {WHOLE_WITHIN:.0f} s after the last blow")
            time.sleep(0.05)

    @staticmethod
    def wait(seconds):
        """The pace of a storm, not a wait for something."""
        time.sleep(seconds)

    def nodes(self, count):
        """Nodes at random, with their processes."""
        pids = self.cluster.pids()
        return [(node, pids[node]) for node in self.draw.sample(sorted(pids), count)]

    def send(self, what, victims):
        self.say(f"{what} {' and '.join(f'n{node} ({pid})' for node, pid in victims)}")
        for _, pid in victims:
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
        # A survivor may have taken over what the first one held: then its end would be a third position out.
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
        os.kill(pid, signal.SIGSTOP)
        self.paused.add(pid)
        self.wait(first)
        then()
        self.wait(seconds - first)
        self.wake(pid)

    def wake(self, pid):
        self.paused.discard(pid)
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def wake_all(self):
        for pid in list(self.paused):
            self.wake(pid)

    def kill_again_and_again(self):
        """The same node, each time as soon as its next process is there: its positions are out, no others."""
        node, pid = self.nodes(1)[0]
        for _ in range(self.draw.randrange(2, 5)):
            self.send("kill", [(node, pid)])
            before = pid
            deadline = time.monotonic() + WHOLE_WITHIN
            while pid == before and time.monotonic() < deadline:
                pid = self.cluster.pids().get(node, before)
            if pid == before or not self.may_lose(node):
                return
            self.wait(self.draw.expovariate(1 / 0.1))

    def may_lose(self, *nodes):
        """Whether no list would have more than two positions out without these nodes."""
        status = self.cluster.any_status()
        if not status:
            return False
        out = lambda position: position["state"] != "live" or position["node"] in nodes
        return all(sum(map(out, entry["positions"])) <= 2 for entry in status["lists"])

    def kill_coordinator(self):
        self.say("kill the coordinator")
        self.cluster.kill_coordinator()

    def kill_coordinator_and_node(self):
        victims = self.nodes(self.draw.choice([1, 2]))
        self.kill_coordinator()
        self.send("kill", victims)

    # Cuts: what one sends the other vanishes, one way or both. `None` is the coordinator.

    def cut_pair(self):
        (one, _), (other, _) = self.nodes(2)
        self.cut_for([(one, other)])

    def cut_from_some(self):
        (one, _), *others = self.nodes(self.draw.randrange(3, 5))
        self.cut_for([(one, other) for other, _ in others])

    def cut_off(self):
        (one, _), *others = self.nodes(len(self.cluster.pids()))
        self.cut_for([(one, other) for other, _ in others] + [(one, None)])

    def cut_from_coordinator(self):
        (one, _), = self.nodes(1)
        self.cut_for([(one, None)])

    def cut_and_kill(self):
        one, other = self.nodes(2)
        self.cut_for([(one[0], other[0])], lambda: self.send("kill", [self.draw.choice([one, other])]))

    def cut_for(self, pairs, then=lambda: None):
        seconds = self.draw.choice([self.draw.uniform(0.1, 1), self.draw.uniform(1, 6)])
        ways = self.draw.choice(["there", "back", "both ways"])
        names = [f"n{one}-{'coordinator' if other is None else f'n{other}'}" for one, other in pairs]
        self.say(f"cut {' '.join(names)} {ways} for {seconds:.2f} s")
        for one, other in pairs:
            if ways != "back":
                self.cluster.cut(one, other)
            if ways != "there":
                self.cluster.cut(other, one)
        first = self.draw.uniform(0, seconds)
        self.wait(first)
        then()
        self.wait(seconds - first)
        self.cluster.heal()
