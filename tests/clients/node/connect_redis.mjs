// connect-redis: sessions of Express, over node-redis.

import assert from "node:assert/strict";
import { RedisStore } from "connect-redis";
import express from "express";
import session from "express-session";
import { createClient, createCluster } from "redis";
import { Trial, key, port, ports, version } from "./trial.mjs";

const trial = new Trial("connect-redis", version("connect-redis"));

async function sessions(client, listing) {
  const store = new RedisStore({ client, prefix: key("sess:"), ttl: 100 });
  const app = express();
  app.use(session({ store, secret: "s", resave: false, saveUninitialized: false }));
  app.get("/count", (request, reply) => {
    request.session.count = (request.session.count ?? 0) + 1;
    reply.send(String(request.session.count));
  });
  app.get("/out", (request, reply) => request.session.destroy(() => reply.send("out")));
  const server = await new Promise((done) => {
    const listening = app.listen(0, "127.0.0.1", () => done(listening));
  });
  try {
    const url = `http://127.0.0.1:${server.address().port}`;
    const first = await fetch(`${url}/count`);
    const cookie = first.headers.get("set-cookie").split(";")[0];
    const again = (path) => fetch(url + path, { headers: { cookie } }).then((reply) => reply.text());
    assert.equal(await first.text(), "1");
    assert.equal(await again("/count"), "2");
    if (listing) {
      assert.equal(await new Promise((done) => store.length((_, length) => done(length))), 1);
      assert.equal(await new Promise((done) => store.all((_, all) => done(all[0].count))), 2);
    }
    assert.equal(await again("/out"), "out");
    assert.equal(await again("/count"), "1");
    if (listing) await new Promise((done, fail) => store.clear((error) => (error ? fail(error) : done())));
  } finally {
    server.close();
  }
}

const plain = await createClient({ url: `redis://127.0.0.1:${port("any-key", 1)}` }).connect();
await trial.check("any-key", "sessions of Express, listed and cleared", () => sessions(plain, true));
const cluster = await createCluster({ rootNodes: ports("cluster").map((port) => ({ url: `redis://127.0.0.1:${port}` })) }).connect();
await trial.check("cluster", "sessions of Express", () => sessions(cluster, false));
process.exit(0);
