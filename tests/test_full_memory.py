"""Full memory: writes that need memory are refused, no data is lost, and reads and deletes work."""

import redis


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
        assert client.set(key, b"small again")
    for key, value in values.items():
        assert client.get(key) == value, key
