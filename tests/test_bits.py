"""Strings as arrays of bits: the same answers through every node, for small and large values, and after two losses."""

import pytest
import redis

READ_MAX = 4 << 20
ROOMY = "512mb"


def bit(value, at):
    return value[at // 8] >> (7 - at % 8) & 1


@pytest.mark.parametrize("size", [40, 5_000, 100_000, 1_500_000, READ_MAX])
def test_bits_of_small_and_large_values(start_cluster, rng, size):
    cluster = start_cluster(memory=ROOMY)
    clients = [cluster.client(node, decode_responses=False) for node in range(cluster.nodes)]
    model = bytearray(rng.randbytes(size))
    clients[0].set("{b}it", bytes(model))
    for client in clients:
        at = rng.randrange(8 * size)
        assert client.getbit("{b}it", at) == bit(model, at)
        assert client.setbit("{b}it", at, 1 - bit(model, at)) == bit(model, at)
        model[at // 8] ^= 1 << (7 - at % 8)
        assert client.bitcount("{b}it") == int.from_bytes(model).bit_count()
        assert client.bitfield("{b}it").get("u16", 8 * (size - 2)).execute() == [int.from_bytes(model[-2:])]
    other = rng.randbytes(min(size, READ_MAX - size) or 0)
    clients[1].set("{b}other", other)
    assert clients[2].bitop("XOR", "{b}made", "{b}it", "{b}other") == size
    padded = other.ljust(size, b"\0")
    made = bytes(a ^ b for a, b in zip(model, padded))
    assert clients[3].get("{b}made") == made
    if size < READ_MAX:
        # It grows by zeros.
        end = 8 * (size + 70_000)
        assert clients[4].setbit("{b}it", end, 1) == 0
        model.extend(bytes(70_000) + b"\x80")
    dead = cluster.kill(0, 1)
    survivor = clients[2]
    cluster.until_replaced(dead)
    assert survivor.get("{b}it") == bytes(model)
    assert survivor.get("{b}made") == made
    assert survivor.bitpos("{b}made", 1) == next(at for at in range(8 * size) if bit(made, at))


def test_what_is_too_long_for_bits_is_refused_and_changes_nothing(start_cluster, rng):
    cluster = start_cluster(memory=ROOMY)
    client = cluster.client(0, decode_responses=False)
    value = rng.randbytes(READ_MAX + 1)
    client.set("{b}long", value)
    for refused in [
        lambda: client.bitcount("{b}long"),
        lambda: client.bitpos("{b}long", 1),
        lambda: client.bitop("NOT", "{b}made", "{b}long"),
        lambda: client.bitfield("{b}long").set("u8", 0, 1).execute(),
        lambda: client.bitfield("{b}short").set("u8", 8 * READ_MAX, 1).execute(),
    ]:
        with pytest.raises(redis.ResponseError, match="at most 4194304 bytes"):
            refused()
    with pytest.raises(redis.ResponseError, match="slot"):
        client.bitop("NOT", "elsewhere", "{b}long")
    assert client.getbit("{b}long", 8 * READ_MAX) == bit(value, 8 * READ_MAX)
    assert client.get("{b}long") == value
    assert client.exists("{b}made", "{b}short") == 0
