// Histories: programs and their children are killed and frozen at random. FENCEPOST_HISTORIES says how many; 2 by default.
//
// Several processes append the numbers 1, 2, 3, … each with itself as the cursor. The log must have all of them, in order,
// once: no gap, nothing twice, and everything that was acknowledged.

import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, statSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as after } from "node:timers/promises";

import { children, directory, kill, start, values } from "./tools.js";

/** Numbers from 0 to 1 that follow from a seed: mulberry32. */
function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

async function end(p: ChildProcess): Promise<void> {
  const own = children(p.pid!);
  const over = p.exitCode === null && p.signalCode === null ? once(p, "exit") : undefined;
  kill(p.pid!, "SIGKILL");
  await over;
  for (const c of own) kill(c, "SIGKILL");
}

async function history(dir: string, seed: number): Promise<void> {
  const next = random(seed);
  const url = `file://${dir}/log`;
  const acked = [0, 1, 2].map((i) => join(dir, `acked-${i}`));
  const begin = (i: number) => start("producer.js", url, acked[i]!);
  const size = () => acked.reduce((sum, f) => sum + (existsSync(f) ? statSync(f).size : 0), 0);
  const producers = acked.map((_, i) => begin(i));
  try {
    for (let round = 0; round < 6; round++) {
      const before = size();
      const late = AbortSignal.timeout(60_000);
      while (size() === before) {
        assert(!late.aborted, `seed ${seed}: nobody appends`);
        await after(10); // until somebody leads and appends
      }
      const i = Math.floor(next() * 3);
      const p = producers[i]!;
      const victims = [p.pid!, ...children(p.pid!)];
      const victim = victims[Math.floor(next() * victims.length)]!;
      if (next() < 0.5) kill(victim, "SIGKILL");
      else {
        kill(victim, "SIGSTOP"); // awake again when others may have led
        await after(next() * 2000);
        kill(victim, "SIGCONT");
      }
      await after(1); // so that this process hears of an end
      if (p.exitCode !== null || p.signalCode !== null) producers[i] = begin(i);
    }
  } finally {
    await Promise.all(producers.map(end));
  }
  const records = (await values(url)).map(Number);
  assert.deepEqual(records, Array.from(records, (_, i) => i + 1), `seed ${seed}: a gap, or something twice`);
  for (const f of acked.filter((f) => existsSync(f))) {
    const whole = readFileSync(f, "utf8").split("\n").slice(0, -1);
    for (const line of whole) {
      const [k, offset] = line.split(" ").map(Number);
      assert.equal(records[offset!], k, `seed ${seed}: ${k} was acknowledged at ${offset}`);
    }
  }
}

test("histories", async (t) => {
  const tmp = await directory(t);
  const first = Number(process.env["FENCEPOST_SEED"] ?? 1);
  for (let seed = first; seed < first + Number(process.env["FENCEPOST_HISTORIES"] ?? 2); seed++) {
    const dir = join(tmp, String(seed));
    await mkdir(dir);
    await history(dir, seed);
  }
});
