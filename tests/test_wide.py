"""A wide scheme on as many processes as it has positions: 20 here; `lab` has experiments with up to 132."""

import os
import signal

import redis

from conftest import is_refused, until
from test_kill import load


def test_any_four_of_twenty_nodes_die_at_once_and_every_value_is_right(start_cluster, rng):
    cluster = start_cluster(nodes=20, scheme="16+4", memory="32mb")
    values = load(cluster, rng, 2000)
    victims = rng.sample(range(1, 20), 4)
    pids = {node["id"]: node["pid"] for node in cluster.status()["nodes"]}
    for victim in victims:
        os.kill(pids[victim], signal.SIGKILL)
    client = cluster.client(decode_responses=False)

    def is_right(key, value):
        try:
            assert client.get(key) == value, key
        except redis.ResponseError as error:
            # Until its next owner serves.
            assert is_refused(error), error
            return False
        return True

    for key, value in values.items():
        until(lambda k=key, v=value: is_right(k, v), "the key's next owner")
