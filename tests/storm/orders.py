"""The orders of an operator in a storm: nodes are drained or shunned and taken back, slots move. The orders of a blow
are undone by the same blow, whatever else it did. Only slots keep moving, and stay where they are."""

import random
import time

SLOTS = 16_384
# Seconds until an order must be accepted: the coordinator may be dead just now.
TAKEN_WITHIN = 120.0
# Refusals that mean that nothing is to be done: the slots are already there, the node cannot take them, or a move has
# ended by itself, or is the one ordered, whose first answer was lost.
MOOT = ("they are all of", "holds no data position", "no slots are being moved", "are being moved")


class Orders:
    """A part of `Faults`."""

    def __init__(self, seed):
        # Separate from the plan of faults, because the number of repetitions of an order depends on timing.
        self.asking = random.Random(f"{seed}/orders")

    def order(self, *words):
        """Repeats an order until it is accepted. Returns false if nothing is to be done."""
        deadline = time.monotonic() + TAKEN_WITHIN
        while why := self.cluster.order(self.asking.randrange(self.shape.nodes), *map(str, words)):
            if any(moot in why for moot in MOOT):
                return False
            if time.monotonic() > deadline:
                raise AssertionError(f"paritas {' '.join(map(str, words))}: {why}")
            time.sleep(0.1)
        return True

    def all_serve(self):
        """Whether no node is leaving or still coming back. Otherwise one more position may be out."""
        status = self.cluster.any_status()
        return status is not None and all(node["duty"] == "full" for node in status["nodes"])

    def drain(self):
        self.send_away("drain")

    def shun(self):
        self.send_away("shun")

    def drain_and_pause(self):
        self.send_away("drain", self.pause)

    def shun_and_pause(self):
        self.send_away("shun", self.pause)

    def drain_and_kill(self):
        self.send_away("drain", self.kill_if_it_may_be)

    def shun_and_kill(self):
        self.send_away("shun", self.kill_if_it_may_be)

    def drain_and_kill_coordinator(self):
        self.send_away("drain", self.kill_coordinator)

    def kill_if_it_may_be(self):
        """Kills a node that leaves, one that takes over, or another one."""
        victim, = self.nodes(1)
        if self.may_lose(victim[0]):
            self.send("kill", [victim])

    def send_away(self, task, then=lambda: None):
        """Sends a node away for a while. It may be called back before it has left, or long after."""
        # There are as many log nodes as logged positions, so none of them can leave.
        node = self.draw.randrange(self.shape.members)
        stays_away, goes_first = self.draw.choice([True, False]), self.draw.expovariate(1 / 0.1)
        self.say(f"{task} n{node}")
        self.order(task, node, "--no-wait")
        try:
            self.wait(goes_first)
            then()
            self.wait(self.draw.uniform(0, 1))
            deadline = time.monotonic() + 10
            while stays_away and self.holds(node) and time.monotonic() < deadline:
                self.wait(0.1)
        finally:
            held = self.holds(node)
            self.say(f"n{node} is to come back; it holds {'an unknown number of' if held is None else held} positions")
            self.order(task, node, "--undo", "--no-wait")

    def holds(self, node):
        status = self.cluster.any_status()
        return status and next(entry["positions"] for entry in status["nodes"] if entry["id"] == node)

    def move_slots(self):
        """Moves some slots to a node or a stream. A move still under way is left alone, or stopped first."""
        if self.slots_move():
            if self.draw.random() < 0.5:
                return
            self.say("stop moving slots")
            self.order("move-slots", "--stop", "--no-wait")
        first, count = self.draw.randrange(SLOTS), self.draw.choice([1, self.draw.randrange(1, 200), self.draw.randrange(200, 3_000)])
        node, position = self.draw.randrange(self.shape.members), self.draw.randrange(self.shape.data)
        # There is at least one list for each member.
        to = self.draw.choice([f"n{node}", f"{node}/{position}"])
        slots = f"{first}-{min(first + count, SLOTS) - 1}"
        self.say(f"move slots {slots} to {to}")
        self.order("move-slots", slots, "--to", to, "--no-wait")

    def slots_move(self):
        status = self.cluster.any_status()
        return status is None or (status["slots"] or {}).get("state") == "moving"

    def until_slots_rest(self):
        began = time.monotonic()
        while self.slots_move():
            if time.monotonic() - began > TAKEN_WITHIN:
                raise AssertionError(f"slots still move after {TAKEN_WITHIN:.0f} s: {self.cluster.any_status()}")
            time.sleep(0.05)
