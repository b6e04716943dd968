// What the programs of this folder share: a line for each thing that was tried, and writing and reading while a node dies.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";

export const [MODE, BASE, NODES, VICTIM] = process.argv.slice(2).map((word, n) => (n ? Number(word) : word));
// Keys of one run differ from those of all others.
const RUN = randomUUID().slice(0, 8);
const OFFSETS = { "any-key": 0, cluster: 1_000, memcached: 2_000 };
// Longest wait for anything, and keys and pause of a client while a node dies.
const TIMEOUT_MS = 15_000;
const KEYS = 40;
const PAUSE_MS = 5;
let checks = 0;

export const port = (kind, node = 0) => BASE + OFFSETS[kind] + node;
export const ports = (kind) => Array.from({ length: NODES }, (_, node) => port(kind, node));
// A key that no other check has.
export const key = (name) => `${RUN}:${checks}:${name}`;
export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export function version(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}

export async function until(condition) {
  const deadline = Date.now() + TIMEOUT_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`not within ${TIMEOUT_MS} ms`);
    await pause(10);
  }
}

function line(...words) {
  process.stdout.write(words.map((word) => String(word).split(/\s+/).join(" ").slice(0, 400)).join("\t") + "\n");
}

// An error and those that caused it.
function text(error) {
  return [error?.name ?? "Error", error?.message ?? error, error?.cause?.message, error?.lastNodeError?.message].filter(Boolean).join(": ");
}

// Fails if `doing` takes too long, so that one check cannot stop the others.
function within(doing) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`not answered within ${TIMEOUT_MS} ms`)), TIMEOUT_MS);
  });
  return Promise.race([doing, late]).finally(() => clearTimeout(timer));
}

export class Trial {
  constructor(client, version) {
    Object.assign(this, { client, version });
  }

  async check(kind, what, work) {
    if (MODE !== "work") return;
    checks += 1;
    try {
      await within(work());
      line("check", this.client, this.version, kind, what, "ok", "");
    } catch (error) {
      line("check", this.client, this.version, kind, what, "failed", text(error));
    }
  }

  // `ways`: how a client is connected, and a function that connects it and returns its `put` and `get`.
  async ride(ways) {
    if (MODE !== "ride") return;
    let ended = false;
    process.stdin.on("end", () => (ended = true)).resume();
    line("riders", this.client, this.version, ...Object.keys(ways));
    await Promise.all(Object.entries(ways).map(async ([how, connect]) => this.#ride(how, await connect(), () => ended)));
    process.exit(0);
  }

  async #ride(how, { put, get }, ended) {
    // What a key may hold, by its number. A key whose write failed is not used again: the write may still come.
    const holds = new Map();
    const names = new Map();
    for (let count = 0; !ended(); count += 1) {
      await pause(PAUSE_MS);
      const number = count % KEYS;
      if (!names.has(number)) names.set(number, key(`${this.client} ${how} ${count}`.replace(/\s/g, "-")));
      const name = names.get(number);
      if (holds.has(number)) {
        const found = await this.#one(how, () => get(name));
        if (found && String(found[0]) !== holds.get(number)) {
          line("op", this.client, how, 0, 0, `wrong: ${name} has ${found[0]} instead of ${holds.get(number)}`);
        }
      }
      if (await this.#one(how, () => put(name, `v${count}`))) holds.set(number, `v${count}`);
      else {
        holds.delete(number);
        names.delete(number);
      }
    }
  }

  // Prints what one operation did. Returns its result in an array, or null after an error.
  async #one(how, work) {
    const start = Date.now();
    let [result, said] = [null, "ok"];
    try {
      result = [await work()];
    } catch (error) {
      said = text(error);
    }
    line("op", this.client, how, start, Date.now(), said);
    return result;
  }
}

// An application's process does not end with a connection either.
process.on("unhandledRejection", (error) => console.error("unhandled:", error));
if (MODE === "work") process.stdin.resume().unref?.();
