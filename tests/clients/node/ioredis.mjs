// ioredis: Redis, Cluster, and Redis with several addresses by Sentinel.

import assert from "node:assert/strict";
import { Cluster, Redis } from "ioredis";
import { BASE, MODE, Trial, VICTIM, key, port, ports, until, version } from "./trial.mjs";

const trial = new Trial("ioredis", version("ioredis"));
const quiet = (redis) => redis.on("error", () => {});
const plain = (node = 0, options = {}) => quiet(new Redis({ port: port("any-key", node), ...options }));
const cluster = (options = {}) => quiet(new Cluster(ports("cluster").map((port) => ({ host: "127.0.0.1", port })), options));
// Of these nodes, the client takes the first that answers. Here that is the one that dies.
const nodes = ports("any-key").map((port) => ({ host: "127.0.0.1", port }));
const sentinels = [...nodes.slice(VICTIM), ...nodes.slice(0, VICTIM)];
const sentinel = (options = {}) => quiet(new Redis({ sentinels, name: "paritas", ...options }));

const works = {
  async strings(r) {
    assert.equal(await r.set(key("a"), "1", "NX"), "OK");
    assert.equal(await r.set(key("a"), "2", "NX"), null);
    assert.equal(await r.set(key("a"), "2", "GET"), "1");
    assert.equal(await r.append(key("a"), "xy"), 3);
    assert.equal(await r.mset({ [key("{t}a")]: "1", [key("{t}b")]: "2" }), "OK");
    assert.deepEqual(await r.mget(key("{t}a"), key("{t}b"), key("{t}c")), ["1", "2", null]);
    assert.deepEqual(await r.getrangeBuffer(key("a"), 1, 2), Buffer.from("xy"));
    const large = "x".repeat(300_000);
    await r.set(key("large"), large);
    assert.equal(await r.get(key("large")), large);
  },
  async expiry(r) {
    await r.set(key("e"), "v", "PX", 150);
    await until(async () => (await r.get(key("e"))) === null);
    await r.set(key("e"), "v");
    assert.equal(await r.expire(key("e"), 100), 1);
    assert.ok((await r.ttl(key("e"))) > 90);
    assert.equal(await r.persist(key("e")), 1);
  },
  async counters(r) {
    assert.deepEqual([await r.incr(key("n")), await r.incrby(key("n"), 9), await r.decr(key("n"))], [1, 10, 9]);
  },
  async pipelines(r) {
    const tag = key("{p}");
    const writes = r.pipeline();
    for (let n = 0; n < 200; n += 1) writes.set(tag + n, n);
    assert.ok((await writes.exec()).every(([error, reply]) => !error && reply === "OK"));
    const replies = await Promise.all(Array.from({ length: 200 }, (_, n) => r.get(tag + n)));
    assert.deepEqual(replies, Array.from({ length: 200 }, (_, n) => String(n)));
  },
  async MULTI(r) {
    const replies = await r.multi().set(key("{m}a"), 1).incr(key("{m}a")).get(key("{m}a")).exec();
    assert.deepEqual(replies, [[null, "OK"], [null, 2], [null, "2"]]);
  },
  async scripts(r) {
    // defineCommand sends EVALSHA, and EVAL after NOSCRIPT.
    r.defineCommand("release", { numberOfKeys: 1, lua: `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- ${key("")}` });
    await r.set(key("s"), "mine");
    assert.equal(await r.release(key("s"), "other"), 0);
    assert.equal(await r.release(key("s"), "mine"), 1);
    await Promise.all((r.nodes?.("master") ?? [r]).map((node) => node.script("FLUSH")));
    assert.equal(await r.release(key("s"), "mine"), 0);
  },
  async SCAN(r) {
    for (let n = 0; n < 200; n += 1) await r.set(key(`scan${n}`), n);
    const found = new Set();
    for (const node of r.nodes?.("master") ?? [r]) {
      for await (const keys of node.scanStream({ match: key("scan*"), count: 50 })) keys.forEach((name) => found.add(name));
    }
    assert.equal(found.size, 200);
  },
  async "Pub/Sub"(r) {
    const listener = r.duplicate();
    quiet(listener);
    const got = new Promise((done) => listener.on("message", (_, text) => done(text)));
    try {
      await listener.subscribe(key("channel"));
      await r.publish(key("channel"), "hello");
      assert.equal(await got, "hello");
    } finally {
      listener.disconnect();
    }
  },
  async hashes(r) {
    assert.equal(await r.hset(key("h"), "field", "1"), 1);
  },
};

async function watch(r) {
  const [one, other] = [r.duplicate(), r];
  quiet(one);
  await one.set(key("{w}n"), 5);
  await one.watch(key("{w}n"));
  assert.deepEqual(await one.multi().incr(key("{w}n")).exec(), [[null, 6]]);
  await one.watch(key("{w}n"));
  await other.set(key("{w}n"), 100);
  assert.equal(await one.multi().incr(key("{w}n")).exec(), null);
  one.disconnect();
}

if (MODE === "work") {
  for (const [kind, client] of [["any-key", plain()], ["cluster", cluster()]]) {
    for (const [what, work] of Object.entries(works)) await trial.check(kind, what, () => work(client));
    if (kind === "any-key") await trial.check(kind, "WATCH", () => watch(client));
    client.disconnect();
  }
  await trial.check("any-key", "auto-pipelining", async () => {
    const r = plain(0, { enableAutoPipelining: true });
    assert.deepEqual(await Promise.all(Array.from({ length: 50 }, () => r.incr(key("n")))), Array.from({ length: 50 }, (_, n) => n + 1));
    r.disconnect();
  });
  await trial.check("cluster", "auto-pipelining", async () => {
    const r = cluster({ enableAutoPipelining: true });
    await Promise.all(Array.from({ length: 50 }, (_, n) => r.set(key(`${n}`), n)));
    assert.equal(await r.get(key("49")), "49");
    r.disconnect();
  });
  await trial.check("any-key", "Sentinel", async () => {
    const r = sentinel();
    assert.equal(await r.set(key("a"), 1), "OK");
    r.disconnect();
  });
  await trial.check("any-key", "database 1", async () => {
    const r = quiet(new Redis(`redis://127.0.0.1:${BASE}/1`, { maxRetriesPerRequest: 1 }));
    const failed = new Promise((_, fail) => r.on("error", fail));
    await Promise.race([r.set(key("a"), 1), failed]);
    assert.equal(await plain().get(key("a")), null, "the key is in database 0");
    r.disconnect();
  });
}

const of = (client) => () => ({ put: (name, value) => client.set(name, value), get: (name) => client.get(name) });
await trial.ride(MODE === "ride" && {
  "any-key port, another node dies": of(plain(0)),
  "any-key port, its own node dies": of(plain(VICTIM)),
  "any-key ports as Sentinels, its own node dies; `socketTimeout: 1000`, `sentinelCommandTimeout: 500`": of(sentinel({ socketTimeout: 1000, connectTimeout: 1000, sentinelCommandTimeout: 500 })),
  "cluster port": of(cluster()),
  "cluster port; `redisOptions: { socketTimeout: 1000 }`, `slotsRefreshTimeout: 500`": of(cluster({ slotsRefreshTimeout: 500, redisOptions: { socketTimeout: 1000, connectTimeout: 1000 } })),
});
process.exit(0);
