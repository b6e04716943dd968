// Keyv and cache-manager, over @keyv/redis.

import assert from "node:assert/strict";
import KeyvRedis, { createCluster } from "@keyv/redis";
import { createCache } from "cache-manager";
import { Keyv } from "keyv";
import { Trial, key, port, ports, until, version } from "./trial.mjs";

const stores = {
  "any-key": () => new KeyvRedis(`redis://127.0.0.1:${port("any-key", 4)}`),
  cluster: () => new KeyvRedis(createCluster({ rootNodes: ports("cluster").map((port) => ({ url: `redis://127.0.0.1:${port}` })) })),
};

async function keyv(kind) {
  const cache = new Keyv(stores[kind](), { namespace: key("keyv").replaceAll(":", "-") });
  const errors = [];
  cache.on("error", (error) => errors.push(error));
  assert.ok(await cache.set("a", { b: 1 }));
  assert.deepEqual(await cache.get("a"), { b: 1 });
  await cache.set("short", 1, 150);
  await until(async () => (await cache.get("short")) === undefined);
  await cache.setMany([{ key: "x", value: 1 }, { key: "y", value: 2 }]);
  assert.deepEqual(await cache.getMany(["x", "y", "z"]), [1, 2, undefined]);
  assert.ok((await cache.delete("x")) && !(await cache.has("x")));
  const names = [];
  for await (const [name] of cache.iterator()) names.push(name);
  assert.deepEqual(names.sort(), ["a", "y"]);
  await cache.clear();
  assert.equal(await cache.get("y"), undefined);
  assert.deepEqual(errors, []);
}

async function manager(kind) {
  const cache = createCache({ stores: [new Keyv(stores[kind](), { namespace: key("manager") })], ttl: 10_000 });
  let calls = 0;
  const load = () => cache.wrap("slow", async () => (calls += 1));
  assert.deepEqual([await load(), await load(), calls], [1, 1, 1]);
  await cache.mset([{ key: "a", value: 1 }, { key: "b", value: 2 }]);
  assert.deepEqual(await cache.mget(["a", "b"]), [1, 2]);
  await cache.del("slow");
  assert.equal(await load(), 2);
  await cache.clear();
  assert.equal(await cache.get("a"), undefined);
}

for (const kind of Object.keys(stores)) {
  await new Trial("@keyv/redis", version("@keyv/redis")).check(kind, "get, set, expiry, many, has, iterator, clear", () => keyv(kind));
  await new Trial("cache-manager", version("cache-manager")).check(kind, "wrap, many, del, clear", () => manager(kind));
}
process.exit(0);
