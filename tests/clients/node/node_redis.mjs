// node-redis (package `redis`): createClient and createCluster, and what it does without CLIENT TRACKING.

import assert from "node:assert/strict";
import { createClient, createCluster } from "redis";
import { BASE, MODE, Trial, VICTIM, key, port, ports, until, version } from "./trial.mjs";

const trial = new Trial("node-redis", version("redis"));
const quiet = (redis) => redis.on("error", () => {});
const plain = (node = 0, options = {}) => quiet(createClient({ ...options, socket: { port: port("any-key", node), ...options.socket } })).connect();
const rootNodes = ports("cluster").map((port) => ({ url: `redis://127.0.0.1:${port}` }));
const cluster = (options = {}) => quiet(createCluster({ rootNodes, ...options })).connect();

// The default strategy never connects again after a socketTimeout: the client would stay closed.
const socket = { socketTimeout: 1000, connectTimeout: 1000, reconnectStrategy: (retries) => Math.min(retries * 50, 500) };

const works = {
  async strings(r) {
    assert.equal(await r.set(key("a"), "1", { condition: "NX" }), "OK");
    assert.equal(await r.set(key("a"), "2", { condition: "NX" }), null);
    assert.equal(await r.set(key("a"), "2", { GET: true }), "1");
    assert.equal(await r.append(key("a"), "xy"), 3);
    assert.equal(await r.mSet([[key("{t}a"), "1"], [key("{t}b"), "2"]]), "OK");
    assert.deepEqual(await r.mGet([key("{t}a"), key("{t}b"), key("{t}c")]), ["1", "2", null]);
    const large = "x".repeat(300_000);
    await r.set(key("large"), large);
    assert.equal(await r.get(key("large")), large);
  },
  async expiry(r) {
    await r.set(key("e"), "v", { PX: 150 });
    await until(async () => (await r.get(key("e"))) === null);
    await r.setEx(key("e"), 100, "v");
    assert.ok((await r.ttl(key("e"))) > 90);
    assert.equal(await r.persist(key("e")), 1);
  },
  async counters(r) {
    assert.deepEqual([await r.incr(key("n")), await r.incrBy(key("n"), 9), await r.decr(key("n"))], [1, 10, 9]);
  },
  async pipelines(r) {
    // Commands of one tick are one pipeline.
    await Promise.all(Array.from({ length: 200 }, (_, n) => r.set(key(`p${n}`), String(n))));
    const found = await Promise.all(Array.from({ length: 200 }, (_, n) => r.get(key(`p${n}`))));
    assert.deepEqual(found, Array.from({ length: 200 }, (_, n) => String(n)));
    assert.deepEqual(await r.multi().set(key("{q}"), "1").get(key("{q}")).execAsPipeline(), ["OK", "1"]);
  },
  async MULTI(r) {
    assert.deepEqual(await r.multi().set(key("{m}a"), "1").incr(key("{m}a")).get(key("{m}a")).exec(), ["OK", 2, "2"]);
  },
  async scripts(r) {
    await r.set(key("s"), "mine");
    const release = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- ${key("")}`;
    assert.equal(await r.eval(release, { keys: [key("s")], arguments: ["other"] }), 0);
    assert.equal(await r.eval(release, { keys: [key("s")], arguments: ["mine"] }), 1);
  },
  async "Pub/Sub"(r) {
    const listener = quiet(r.duplicate());
    await listener.connect();
    try {
      const got = new Promise((done, fail) => listener.subscribe(key("channel"), done).catch(fail));
      got.catch(() => {});
      await r.publish(key("channel"), "hello");
      assert.equal(await got, "hello");
    } finally {
      listener.destroy();
    }
  },
  async hashes(r) {
    assert.equal(await r.hSet(key("h"), "field", "1"), 1);
  },
};

const plainWorks = {
  async WATCH(r) {
    const one = await quiet(r.duplicate()).connect();
    await one.set(key("{w}n"), "5");
    await one.watch(key("{w}n"));
    assert.deepEqual(await one.multi().incr(key("{w}n")).exec(), [6]);
    await one.watch(key("{w}n"));
    await r.set(key("{w}n"), "100");
    await assert.rejects(one.multi().incr(key("{w}n")).exec(), /watched keys/);
    one.destroy();
  },
  async SCAN(r) {
    for (let n = 0; n < 200; n += 1) await r.set(key(`scan${n}`), String(n));
    const found = new Set();
    for await (const keys of r.scanIterator({ MATCH: key("scan*"), COUNT: 50 })) keys.forEach((name) => found.add(name));
    assert.equal(found.size, 200);
  },
};

async function cached(kind) {
  const options = { RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100 } };
  const once = { socket: { reconnectStrategy: false } };
  const client = kind === "cluster" ? await cluster({ ...options, defaults: once }) : await plain(0, { ...options, ...once });
  try {
    await client.set(key("c"), "1");
    assert.equal(await client.get(key("c")), "1");
  } finally {
    client.destroy();
  }
}

if (MODE === "work") {
  for (const [kind, connect] of [["any-key", plain], ["cluster", cluster]]) {
    const client = await connect();
    const all = kind === "any-key" ? { ...works, ...plainWorks } : works;
    for (const [what, work] of Object.entries(all)) await trial.check(kind, what, () => work(client));
    client.destroy();
    for (const RESP of [2, 3]) {
      await trial.check(kind, `RESP${RESP}`, async () => {
        const r = kind === "cluster" ? await cluster({ RESP }) : await plain(0, { RESP });
        await r.set(key("a"), "x");
        assert.equal(await r.get(key("a")), "x");
        r.destroy();
      });
    }
    await trial.check(kind, "client-side cache", () => cached(kind));
  }
  await trial.check("any-key", "database 1", async () => {
    const r = createClient({ url: `redis://127.0.0.1:${BASE}/1`, socket: { reconnectStrategy: false } });
    quiet(r);
    await r.connect();
    await r.set(key("a"), "1");
    r.destroy();
  });
}

const of = async (connecting) => {
  const client = await connecting;
  return () => ({ put: (name, value) => client.set(name, value), get: (name) => client.get(name) });
};
await trial.ride(MODE === "ride" && {
  "any-key port, another node dies": await of(plain(0)),
  "any-key port, its own node dies": await of(plain(VICTIM)),
  "any-key port, its own node dies; `socketTimeout: 1000` and a `reconnectStrategy`": await of(plain(VICTIM, { socket })),
  "cluster port": await of(cluster()),
  "cluster port; `socketTimeout: 1000` and a `reconnectStrategy`": await of(cluster({ defaults: { socket } })),
});
process.exit(0);
