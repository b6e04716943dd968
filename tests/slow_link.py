"""A TCP relay with a delay: like a distant host, or one with a slow link, for those who dial it. It is a process of its
own, so that it takes no time from the client."""

import asyncio
import multiprocessing

READ_MAX = 1 << 14
# Most seconds by which a relay that wakes up late may catch up.
LATE_MAX = 0.05


class Rate:
    """Limit in bytes a second for all relayed data together; 0: no limit."""

    def __init__(self, limit):
        self.limit, self.free_at = limit, 0.0

    def passes_at(self, now, size):
        if not self.limit.value:
            return now
        self.free_at = max(self.free_at, now - LATE_MAX) + size / self.limit.value
        return self.free_at


async def pump(reader, writer, delay, rate):
    """Each byte arrives `delay` seconds after it was sent, or after its turn under the rate, however many are under
    way."""
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue()

    async def deliver():
        try:
            while (item := await queue.get()) is not None:
                at, data = item
                await asyncio.sleep(max(0.0, at - loop.time()))
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    delivery = loop.create_task(deliver())
    try:
        while data := await reader.read(READ_MAX):
            at = rate.passes_at(loop.time(), len(data)) if rate else loop.time()
            queue.put_nowait((at + delay.value, data))
            if rate:
                # A slow link delays the sender.
                await asyncio.sleep(max(0.0, at - loop.time()))
    except OSError:
        pass
    queue.put_nowait(None)
    await delivery


async def serve(listen, target, delay, limit, ready):
    rate = Rate(limit)

    async def relay(reader, writer):
        try:
            there_reader, there_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, there_writer, delay, None), pump(there_reader, writer, delay, rate))

    server = await asyncio.start_server(relay, *listen)
    ready.set()
    await server.serve_forever()


def run(*arguments):
    asyncio.run(serve(*arguments))


class SlowLink:
    """Listens at one address and relays to another."""

    def __init__(self, listen, target):
        self._delay, self._limit = multiprocessing.Value("d", 0.0), multiprocessing.Value("d", 0.0)
        ready = multiprocessing.Event()
        arguments = (listen, target, self._delay, self._limit, ready)
        self._process = multiprocessing.get_context("fork").Process(target=run, args=arguments, daemon=True)
        self._process.start()
        assert ready.wait(60), "the relay did not start"

    def slow_by(self, seconds):
        """Sets the delay of each byte, the same in both directions."""
        self._delay.value = seconds

    def limit_to(self, bytes_a_second):
        """Limits the data from the relayed address, over all links together, in bytes a second; 0: no limit."""
        self._limit.value = bytes_a_second

    def close(self):
        self._process.terminate()
        self._process.join()
