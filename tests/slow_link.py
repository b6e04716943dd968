"""A TCP relay that takes its time: what a host far away looks like to those who dial it."""

import asyncio
import threading

READ_MAX = 1 << 16


class SlowLink:
    """Listens at one address and relays to another; each byte arrives `delay` seconds after it was sent."""

    def __init__(self, listen, target):
        self.delay = 0.0
        self.target = target
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(asyncio.start_server(self._relay, *listen))
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    async def _relay(self, reader, writer):
        try:
            there_reader, there_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))

    async def _pump(self, reader, writer):
        queue = asyncio.Queue()

        async def deliver():
            while (item := await queue.get()) is not None:
                at, data = item
                await asyncio.sleep(max(0.0, at - self.loop.time()))
                writer.write(data)
            writer.close()

        delivery = self.loop.create_task(deliver())
        try:
            while data := await reader.read(READ_MAX):
                queue.put_nowait((self.loop.time() + self.delay, data))
        except OSError:
            pass
        queue.put_nowait(None)
        await delivery

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.server.close()
