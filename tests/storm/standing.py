"""Large values that are written before the faults and must stay until the cluster ends (`--fill`)."""

import random
import threading

import redis

from workload import any_node, is_large, value_of

# Client number of the writer: no client of a round has it.
WRITER = 9_990
LINKS = 4


def fill(addresses, prefix, bytes_wanted, say):
    """Writes large values until their sum is reached. Returns pairs of key and number."""
    draw = random.Random(prefix)
    numbers = (number for number in range(WRITER * 10_000_000, (WRITER + 1) * 10_000_000) if is_large(number))
    lock, written, errors = threading.Lock(), [], []
    sum_bytes = said = 0

    def write():
        nonlocal sum_bytes, said
        link = None
        try:
            link = any_node(addresses)(draw, 120.0)
            while not errors:
                with lock:
                    if sum_bytes >= bytes_wanted:
                        break
                    number = next(numbers)
                    value = value_of(number)
                    sum_bytes += len(value)
                    if sum_bytes - said >= bytes_wanted // 4:
                        said = sum_bytes
                        say(f"{sum_bytes / 2**30:.1f} of {bytes_wanted / 2**30:.1f} GiB of standing values")
                assert link.execute_command("SET", f"{prefix}:{number}", value)
                with lock:
                    written.append((f"{prefix}:{number}", number))
        except (redis.RedisError, OSError, AssertionError) as error:
            errors.append(error)
        finally:
            if link:
                link.close()

    if not bytes_wanted:
        return []
    threads = [threading.Thread(target=write) for _ in range(LINKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # No fault is active yet, so that no write may fail.
    assert not errors, f"a standing value was not written: {errors[0]}"
    assert sum_bytes >= bytes_wanted
    return written
