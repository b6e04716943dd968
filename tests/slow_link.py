"""A TCP relay that takes its time: what a host far away looks like to those who dial it. A process of its own, so that it
takes no time from the client beside it."""

import asyncio
import multiprocessing

READ_MAX = 1 << 16


async def pump(reader, writer, delay):
    """Every byte arrives `delay` seconds after it was sent, however many are under way."""
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue()

    async def deliver():
        while (item := await queue.get()) is not None:
            at, data = item
            await asyncio.sleep(max(0.0, at - loop.time()))
            writer.write(data)
        writer.close()

    delivery = loop.create_task(deliver())
    try:
        while data := await reader.read(READ_MAX):
            queue.put_nowait((loop.time() + delay.value, data))
    except OSError:
        pass
    queue.put_nowait(None)
    await delivery


async def serve(listen, target, delay, ready):
    async def relay(reader, writer):
        try:
            there_reader, there_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, there_writer, delay), pump(there_reader, writer, delay))

    server = await asyncio.start_server(relay, *listen)
    ready.set()
    await server.serve_forever()


def run(*arguments):
    asyncio.run(serve(*arguments))


class SlowLink:
    """Listens at one address and relays to another."""

    def __init__(self, listen, target):
        self._delay = multiprocessing.Value("d", 0.0)
        ready = multiprocessing.Event()
        arguments = (listen, target, self._delay, ready)
        self._process = multiprocessing.get_context("fork").Process(target=run, args=arguments, daemon=True)
        self._process.start()
        assert ready.wait(60), "the relay did not start"

    def slow_by(self, seconds):
        """How long each byte takes from now on, there and back alike."""
        self._delay.value = seconds

    def close(self):
        self._process.terminate()
        self._process.join()
