"""Bytes per object: RSS of all processes minus that of the empty system, divided by the number of objects. Keys have 24
bytes."""

import systems

KEY = 24
VALUES = [8, 32, 100, 1000, 4000]
# Key counts for small and large values. They span one doubling, so that growing tables are met in all phases.
COUNTS = {True: (700_000, 1_400_000), False: (70_000, 140_000)}
# Targets: most bytes per object.
AT_MOST = {
    "paritas 4+1": [56, 87, 172, 1310, 5070],
    "paritas 4+2": [67, 103, 206, 1570, 6090],
    "paritas 8+2": [57, 88, 173, 1310, 5080],
}


def everyone():
    yield from (lambda scheme=scheme: systems.ours(scheme) for scheme in ("1+0", "4+1", "4+2", "8+2"))
    yield systems.redis
    yield systems.Memcached
    yield from (lambda n=n: systems.valkey(n, for_memory=True) for n in (0, 1, 2))


def counts(value, steps):
    first, last = COUNTS[value < 1000]
    return [round(first * (last / first) ** (i / max(steps - 1, 1))) for i in range(steps)]


def expected(scheme, value):
    """The target for the sum of objects, index and their parity."""
    data, parity = map(int, scheme.split("+"))
    return ((KEY + value + 3) + 7.7) * (data + parity) / data * 1.006 + 1


def sweep(start, value, steps):
    """Fills one system in steps and measures after each."""
    with start() as system:
        empty = system.served_once()
        filled, used = 0, {}
        for count in counts(value, steps):
            system.fill(filled, count, value)
            filled = count
            used[count] = system.settled_resident() - empty
        each = [used[count] / count for count in used]
        first = min(used)
        row = {"system": system.name, "value": value, "mean": sum(each) / len(each), "worst": max(each), "empty": empty}
        row["last"], row["growth"] = each[-1], (used[filled] - used[first]) / (filled - first)
        if isinstance(system, systems.Paritas):
            kinds = system.counted(filled)["by_kind"]
            row["kinds"] = {kind: amount / filled for kind, amount in kinds.items()}
            row["expected"] = expected(system.scheme, value)
        return row


def overwritten(start, value, count):
    """Measures again after ten random SETs a key, each with 50-150 % of the first size."""
    with start() as system:
        empty = system.served_once()
        system.fill(0, count, value)
        row = {"system": system.name, "value": value, "count": count}
        row["fresh"] = (system.settled_resident() - empty) / count
        row["fresh_counted"] = coded(system, count)
        system.fill(0, count, value, overwrite=10)
        row["after"] = (system.settled_resident() - empty) / count
        row["after_counted"] = coded(system, count)
        return row


def coded(system, count):
    """Paritas's own count of memory for objects: all kinds except logs of deltas and buffers, which do not grow with
    objects."""
    if not isinstance(system, systems.Paritas):
        return None
    kinds = system.counted(count)["by_kind"]
    return sum(amount for kind, amount in kinds.items() if kind not in ("rings", "buffers", "sockets")) / count


def mixed(scheme, count):
    """Values of 1 to 4096 bytes in turn, compared with the sum."""
    with systems.ours(scheme) as system:
        empty = system.served_once()
        system.fill(0, count, 0)
        each = (system.settled_resident() - empty) / count
        mean = sum(1 + i % 4096 for i in range(count)) / count
        return {"system": system.name, "each": each, "expected": expected(scheme, mean)}
