// redlock over ioredis: locks of one and of several nodes.

import assert from "node:assert/strict";
import { Redis } from "ioredis";
import Redlock from "redlock";
import { Trial, key, port, version } from "./trial.mjs";

const trial = new Trial("redlock", version("redlock"));
const clients = [0, 1, 2].map((node) => new Redis({ port: port("any-key", node) }));

await trial.check("any-key", "lock, extend, unlock, refused while held", async () => {
  const redlock = new Redlock([clients[0]], { retryCount: 0 });
  const lock = await redlock.lock(key("a"), 5_000);
  await assert.rejects(redlock.lock(key("a"), 5_000), /Exceeded 0 attempts/);
  const longer = await lock.extend(10_000);
  await longer.unlock();
  assert.equal(await clients[1].get(key("a")), null);
  await (await redlock.lock([key("{b}1"), key("{b}2")], 5_000)).unlock();
});
process.exit(0);
