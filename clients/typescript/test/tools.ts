// What the tests share.

import { spawn, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

import { read } from "../src/index.js";

/** A directory for one test. */
export async function directory(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "fencepost-ts-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** A place for a log. */
export async function place(t: TestContext): Promise<string> {
  return `file://${await directory(t)}/log`;
}

export async function values(url: string, from?: number): Promise<string[]> {
  const all: string[] = [];
  for await (const r of read(url, from === undefined ? {} : { from })) all.push(r.value.toString("latin1"));
  return all;
}

/** Starts a program of the tests. */
export function start(name: string, ...args: string[]): ChildProcess {
  const file = fileURLToPath(new URL(name, import.meta.url));
  return spawn(process.execPath, [file, ...args], { stdio: ["ignore", "pipe", "ignore"] });
}

/** The processes that one has started, on Linux. */
export function children(pid: number): number[] {
  try {
    // Any thread may have started one; Node does it in its first.
    return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  } catch {
    return []; // it has ended
  }
}

/** Sends a signal, unless the process has ended. */
export function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (e) {
    if ((e as NodeJS.ErrnoException).code !== "ESRCH") throw e;
  }
}
