// rate-limiter-flexible over ioredis and node-redis.

import assert from "node:assert/strict";
import { Cluster, Redis } from "ioredis";
import { BurstyRateLimiter, RateLimiterRedis } from "rate-limiter-flexible";
import { createClient } from "redis";
import { Trial, key, port, ports, version } from "./trial.mjs";

const trial = new Trial("rate-limiter-flexible", version("rate-limiter-flexible"));
const nodeRedis = await createClient({ url: `redis://127.0.0.1:${port("any-key", 2)}` }).connect();

async function limits(options) {
  const limiter = new RateLimiterRedis({ keyPrefix: key("limit"), points: 3, duration: 60, ...options });
  for (let n = 1; n <= 3; n += 1) assert.equal((await limiter.consume("user")).consumedPoints, n);
  await assert.rejects(limiter.consume("user"), (refused) => refused.msBeforeNext > 50_000);
  assert.equal((await limiter.get("user")).consumedPoints, 4);
  assert.equal((await limiter.block("user", 10)).remainingPoints, 0);
  assert.ok(await limiter.delete("user"));
  assert.equal((await limiter.consume("user", 2)).remainingPoints, 1);
}

for (const [kind, name, storeClient, more] of [
  ["any-key", "over ioredis", new Redis({ port: port("any-key") }), {}],
  ["any-key", "over node-redis", nodeRedis, { useRedisPackage: true }],
  ["cluster", "over ioredis", new Cluster(ports("cluster").map((port) => ({ host: "127.0.0.1", port }))), {}],
]) {
  await trial.check(kind, `RateLimiterRedis ${name}`, () => limits({ storeClient, ...more }));
  await trial.check(kind, `BurstyRateLimiter ${name}`, async () => {
    const limiter = (more_) => new RateLimiterRedis({ storeClient, ...more, duration: 60, keyPrefix: key("burst"), ...more_ });
    const bursty = new BurstyRateLimiter(limiter({ points: 1 }), limiter({ points: 2, keyPrefix: key("burst2") }));
    for (let n = 0; n < 3; n += 1) await bursty.consume("user");
    await assert.rejects(bursty.consume("user"), (refused) => refused.msBeforeNext > 0);
  });
}
process.exit(0);
