"""More nodes die at once than the scheme covers (P10.6). The rest can be read; or, by policy, the lists begin
again empty."""

import pytest
import redis

from conftest import until


def get_all(client, keys):
    """For each key its value, or the error."""
    found = {}
    for key in keys:
        try:
            found[key] = client.get(key)
        except redis.RedisError as error:
            found[key] = error
    return found


def lose_three(cluster):
    client = cluster.client()
    keys = [f"lost:{n}" for n in range(200)]
    for key in keys:
        client.set(key, key)
    cluster.kill(3, 4, 5)
    until(lambda: any(entry["lost"] or entry["reset"] for entry in cluster.status()["lists"]), "a lost list")
    return client, keys


def test_a_lost_list_stops_and_is_never_wrong(start_cluster):
    cluster = start_cluster()
    client, keys = lose_three(cluster)
    until(lambda: all(node["state"] != "down" for node in cluster.status()["nodes"]), "six nodes")
    assert all(entry["lost"] and "lost" in entry["reason"] for entry in cluster.status()["lists"])
    found = get_all(client, keys)
    values = [value for value in found.values() if isinstance(value, str)]
    assert values and all(found[key] == key for key in keys if isinstance(found[key], str))
    assert None not in found.values(), "a lost key must be an error, not a missing key"
    # redis-py removes the prefix CLUSTERDOWN and uses an exception class instead.
    refused = {(type(error), str(error)) for error in found.values() if not isinstance(error, str)}
    assert refused == {(redis.exceptions.ClusterDownError, "Hash slot not served")}, refused
    for key in (key for key, value in found.items() if isinstance(value, str)):
        with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
            client.set(key, "more")


def test_by_policy_a_lost_list_begins_again_empty(start_cluster):
    cluster = start_cluster(more=["--lost-policy", "reset"])
    client, keys = lose_three(cluster)
    until(lambda: all(entry["reset"] and not entry["lost"] for entry in cluster.status()["lists"]), "every list reset")
    until(lambda: set(get_all(client, keys).values()) == {None}, "an empty cluster")
    for key in keys:
        assert client.set(key, "again")
    assert set(get_all(cluster.client(5), keys).values()) == {"again"}
