// memcache-client (text protocol) and memjs (binary protocol).

import assert from "node:assert/strict";
import { MemcacheClient } from "memcache-client";
import memjs from "memjs";
import { MODE, Trial, VICTIM, key, port, ports, until, version } from "./trial.mjs";

const trial = new Trial("memcache-client", version("memcache-client"));
const servers = (nodes, options = {}) => new MemcacheClient({ server: { servers: nodes.map((node) => ({ server: `127.0.0.1:${port("memcached", node)}`, maxConnections: 1 })), ...options }, dangleSocketWaitTimeout: 1000 });

if (MODE === "work") {
  const c = servers([0]);
  await trial.check("memcached", "get, set, add, replace, delete", async () => {
    await c.set(key("a"), "1");
    assert.equal((await c.get(key("a"))).value, "1");
    await c.replace(key("a"), { b: 2 });
    assert.deepEqual((await c.get(key("a"))).value, { b: 2 });
    await assert.rejects(c.add(key("a"), "3"), /NOT_STORED/);
    await c.delete(key("a"));
    assert.equal(await c.get(key("a")), undefined);
  });
  await trial.check("memcached", "cas", async () => {
    await c.set(key("a"), "1");
    const { casUniq } = await c.gets(key("a"));
    await c.cas(key("a"), "2", { casUniq });
    await assert.rejects(c.cas(key("a"), "3", { casUniq }), /EXISTS/);
    assert.equal((await c.get(key("a"))).value, "2");
  });
  await trial.check("memcached", "counters, append, prepend", async () => {
    await c.set(key("n"), "5");
    assert.equal(await c.incr(key("n"), 7), "12");
    assert.equal(await c.decr(key("n"), 20), "0");
    await c.append(key("n"), "x");
    await c.prepend(key("n"), "y");
    assert.equal((await c.get(key("n"))).value, "y0 x");
  });
  await trial.check("memcached", "expiry, touch", async () => {
    await c.set(key("e"), "v", { lifetime: 100 });
    await c.touch(key("e"), 1);
    await until(async () => (await c.get(key("e"))) === undefined);
  });
  await trial.check("memcached", "many keys", async () => {
    const names = Array.from({ length: 50 }, (_, n) => key(`many${n}`));
    await Promise.all(names.map((name, n) => c.set(name, `${n}`)));
    const found = await c.get([...names, key("no such key")]);
    assert.equal(Object.keys(found).length, 50);
    assert.equal(found[names[49]].value, "49");
  });
  await new Trial("memjs", version("memjs")).check("memcached", "get, set", async () => {
    const client = memjs.Client.create(`127.0.0.1:${port("memcached")}`, { retries: 1, timeout: 1, logger: { log() {} } });
    await client.set(key("a"), "1", {});
    assert.equal(String((await client.get(key("a"))).value), "1");
  });
}

const of = (client) => () => ({ put: (name, value) => client.set(name, value), get: async (name) => (await client.get(name))?.value });
await trial.ride(MODE === "ride" && {
  "memcached port, another node dies": of(servers([0])),
  "memcached port, its own node dies": of(servers([VICTIM])),
  "memcached ports of all nodes": of(servers(ports("memcached").map((_, node) => node))),
});
process.exit(0);
