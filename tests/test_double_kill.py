"""Any two of six nodes die at once, twice, and no acknowledged write is lost."""

from test_kill import kill_under_load


def test_two_nodes_die_at_once_and_then_two_others(start_cluster, rng):
    cluster = start_cluster()
    first = rng.sample(range(6), 2)
    others = [node for node in range(6) if node not in first]
    kill_under_load(cluster, rng, first, others[:2])
    second = rng.sample(others, 2)
    kill_under_load(cluster, rng, second, [node for node in range(6) if node not in second][:2])
