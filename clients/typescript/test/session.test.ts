// What one session promises, with the real program.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { Fenced, FencepostError, follow, lead, NotCommitted, SessionEnded, tail, UnknownOutcome, type Data, type Session } from "../src/index.js";
import { children, directory, kill, place, start, values } from "./tools.js";

const awkward: Data[] = ["", new Uint8Array(), "a\n", 'quote " and \\', "\x00\x1f", "\u2028\ufffd😀", Uint8Array.of(0xff, 0), "ä".repeat(10_000)];
const latin = (d: Data) => Buffer.from(d as string).toString("latin1");
const run = (...args: string[]) => promisify(execFile)(process.env["FENCEPOST_PROGRAM"] ?? "fencepost", args);

/** Appends until that fails, and returns why. */
async function untilItFails(session: Session, cursor: string): Promise<unknown> {
  for (;;) {
    try {
      await session.append("zombie", { cursor });
    } catch (e) {
      return e;
    }
  }
}

const leading = '{"event":"leading","epoch":1,"end":0,"cursor":""}';

/** A program that speaks as the fencepost of a test does: it prints these lines, and waits for the end of its input. */
async function impostor(dir: string, ...lines: string[]): Promise<string> {
  const file = join(dir, "impostor");
  await writeFile(file, `#!/bin/sh\n${lines.map((l) => (l.startsWith("{") ? `echo '${l}'` : l)).join("\n")}\n`, { mode: 0o755 });
  return file;
}

async function withProgram(file: string, work: () => Promise<void>): Promise<void> {
  const before = process.env["FENCEPOST_PROGRAM"];
  process.env["FENCEPOST_PROGRAM"] = file;
  try {
    await work();
  } finally {
    if (before === undefined) delete process.env["FENCEPOST_PROGRAM"];
    else process.env["FENCEPOST_PROGRAM"] = before;
  }
}

test("the example", async (t) => {
  const url = await place(t);
  const words = ["one", "two", "three"];
  for (const _ of [1, 2]) {
    // The second time it does nothing.
    const end = await lead(url, async (session) => {
      for (let n = Number(session.cursor); n < words.length; n++) session.append(words[n]!, { cursor: String(n + 1) });
      await session.flush();
      return session.end;
    });
    assert.equal(end, 3);
  }
  assert.deepEqual(await values(url), words);
});

test("records come back", async (t) => {
  const url = await place(t);
  {
    await using session = await lead(url);
    const all = awkward.map((r) => session.append(r));
    all.push(session.append(awkward.values(), { cursor: Uint8Array.of(0xff) }));
    assert.deepEqual(await Promise.all(all), [...all.keys()]);
  }
  const wanted = awkward.map(latin);
  assert.deepEqual(await values(url), [...wanted, ...wanted]);
  assert.deepEqual(await values(url, 2 * awkward.length - 1), wanted.slice(-1));
  await using session = await lead(url);
  assert.deepEqual([session.cursor, session.end, session.epoch], [Buffer.of(0xff), 2 * awkward.length, 2]);
});

test("what is no record is refused here", async (t) => {
  await lead(await place(t), async (session) => {
    assert.throws(() => session.append("\udcff"), TypeError);
    assert.throws(() => session.append([]), TypeError);
    assert.throws(() => session.append([7 as unknown as string]), TypeError);
    assert.throws(() => session.append("a", { cursor: "\ud800" }), TypeError);
    assert.equal(await session.append("a"), 0);
  });
});

test("deposed", async (t) => {
  const url = await place(t);
  const session = await lead(url, { validity: 2000 });
  await session.append("a", { cursor: "1" });
  await run("step-down", "--immediate", url);
  await lead(url, async (other) => {
    assert.equal(other.cursor, "1");
    assert(other.epoch > session.epoch);
    const e = await untilItFails(session, "2");
    assert(e instanceof Fenced || (e instanceof NotCommitted && e.cause instanceof Fenced), String(e));
    assert.throws(() => session.append("zombie"), Fenced);
    other.append("b", { cursor: "2" });
  });
  await assert.rejects(session.close(), (e) => e instanceof Fenced || e instanceof NotCommitted);
  assert.deepEqual(await values(url), ["a", "b"]);
});

test("a cursor must not go down", async (t) => {
  const url = await place(t);
  const session = await lead(url);
  session.append("a", { cursor: "7" });
  await assert.rejects(session.append("b", { cursor: "6" }), { name: "NotCommitted", message: /must not go down/ });
  await assert.rejects(session.close(), NotCommitted);
  assert.equal(session.ended?.code, "invalid");
  assert.deepEqual(await values(url), ["a"]);
});

test("busy", async (t) => {
  const url = await place(t);
  await using _ = await lead(url);
  await assert.rejects(lead(url, { wait: false }), { name: "SessionEnded", code: "busy" });
});

test("a signal ends the wait", async (t) => {
  const url = await place(t);
  await using session = await lead(url);
  const stop = new AbortController();
  const waits = new Promise<void>((resolve) => {
    const log = { info: (text: string) => void (text.startsWith("waiting for") && resolve()), warn: () => {} };
    assert.rejects(lead(url, { signal: stop.signal, log }), /enough/).then(() => (gaveUp = true));
  });
  let gaveUp = false;
  await waits;
  stop.abort(new Error("enough"));
  while (!gaveUp) await session.append("a");
  await assert.rejects(lead(url, { signal: stop.signal }), /enough/);
});

test("the function's error comes first", async (t) => {
  const url = await place(t);
  const own = lead(url, (session) => {
    session.append("a", { cursor: "7" });
    session.append("b", { cursor: "6" });
    throw new Error("of the function");
  });
  await assert.rejects(own, /of the function/);
  assert.deepEqual(await values(url), ["a"]); // what was appended before was sent
});

test("the child is killed", async (t) => {
  const url = await place(t);
  const before = children(process.pid);
  const session = await lead(url, { validity: 1000 });
  await session.append("a", { cursor: "1" });
  const [child] = children(process.pid).filter((c) => !before.includes(c));
  kill(child!, "SIGKILL");
  const e = await untilItFails(session, "2");
  assert(e instanceof UnknownOutcome || e instanceof SessionEnded, String(e));
  await assert.rejects(session.close(), (e) => e instanceof UnknownOutcome || e instanceof SessionEnded);
  assert.equal(session.ended?.code, "died");
  assert.match(session.ended.message, /SIGKILL/);
  await using again = await lead(url);
  assert.equal(Number(again.cursor), again.end);
});

test("a frozen program loses the term", async (t) => {
  const url = await place(t);
  const p = start("holder.js", url);
  await once(p.stdout!, "data");
  kill(p.pid!, "SIGSTOP"); // it is not dead
  try {
    await using session = await lead(url);
    assert.equal(session.cursor, "1");
  } finally {
    kill(p.pid!, "SIGKILL");
  }
});

test("a killed program loses the term at once", async (t) => {
  const url = await place(t);
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    const p = start("holder.js", url);
    await once(p.stdout!, "data");
    const own = children(p.pid!);
    assert.equal(own.length, 1);
    kill(p.pid!, signal);
    await using session = await lead(url);
    assert.equal(session.cursor, "1");
    const late = AbortSignal.timeout(60_000);
    while (running(own[0]!)) {
      assert(!late.aborted, "the child outlives the program");
      await session.append("b", { cursor: "1" });
    }
  }
});

function running(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test("stall: a program that does nothing loses the term although its process lives", async (t) => {
  const url = await place(t);
  const session = await lead(url, { stall: 1000 });
  for (const _ of [1, 2, 3]) session.progress();
  await (await lead(url)).close();
  await assert.rejects(session.close(), SessionEnded);
  assert.equal(session.ended?.code, "silent");
});

test("resign", async (t) => {
  const url = await place(t);
  const session = await lead(url);
  session.append("a", { cursor: "1" });
  session.resign();
  await using other = await lead(url);
  assert.equal(other.cursor, "1");
  await session.close(); // the other may lead before this child has said that it does no more
  assert(session.ended);
});

test("follow", async (t) => {
  const url = await place(t);
  await using session = await lead(url);
  session.append(["a", "b"]);
  await session.flush();
  const got: string[] = [];
  for await (const { value, offset } of follow(url)) {
    got.push(`${offset} ${value}`);
    if (got.length === 2) session.append("c");
    if (got.length === 3) break;
  }
  assert.deepEqual(got, ["0 a", "1 b", "2 c"]);
});

test("tail", async (t) => {
  const url = await place(t);
  await using session = await lead(url);
  session.append(["a", "b"]);
  await session.flush();
  const records = tail(url);
  const first = records.next(); // it has seen the end of the log when the first record comes
  let n = 0;
  const more = setInterval(() => session.append(`c${n++}`), 100);
  const got = await first;
  clearInterval(more);
  assert(got.value && got.value.offset >= 2, String(got.value?.offset));
  await records.return();
});

test("a signal ends follow", async (t) => {
  const url = await place(t);
  await using session = await lead(url);
  session.append("a");
  const stop = new AbortController();
  const all = (async () => {
    for await (const _ of follow(url, { signal: stop.signal })) stop.abort(new Error("enough"));
  })();
  await assert.rejects(all, /enough/);
});

test("follow as a consumer", async (t) => {
  const url = await place(t);
  await lead(url, (session) => session.append("a"));
  for await (const { value } of follow(url, { consumer: "c" })) {
    assert.equal(String(value), "a");
    break;
  }
});

test("nothing to read", async (t) => {
  await assert.rejects(values(await place(t)), FencepostError);
});

test("no program", async (t) => {
  await withProgram(join(await directory(t), "missing"), async () => {
    await assert.rejects(lead("mem://x"), { code: "died", message: /does not start.*FENCEPOST_PROGRAM/ });
    await assert.rejects(values("mem://x"), /does not start.*FENCEPOST_PROGRAM/);
  });
});

test("what happens is logged", async (t) => {
  const said: string[] = [];
  await (await lead(await place(t), { log: { info: (text) => said.push(text), warn: assert.fail } })).close();
  assert(said.some((text) => text.startsWith("leading in epoch 1")), said.join("\n"));
});

test("some of it is unknown, some is not committed", async (t) => {
  const dir = await directory(t);
  const lost = '{"event":"lost","code":"fenced","unknown":1,"not_committed":1,"why":"another leads"}';
  const file = await impostor(dir, '{"event":"leading","epoch":1,"end":0,"cursor":""}', "read a; read b; read c", '{"first":0,"end":1,"appends":1}', lost);
  await withProgram(file, async () => {
    const session = await lead("mem://x");
    const [a, b, c] = [session.append("a"), session.append("b"), session.append("c")];
    assert.equal(await a, 0);
    await assert.rejects(b, UnknownOutcome);
    await assert.rejects(c, NotCommitted);
    // Whoever appends again what flush says is not committed would append b twice.
    await assert.rejects(session.flush(), UnknownOutcome);
    await assert.rejects(session.close(), UnknownOutcome);
  });
});

test("close says what the child has not taken", async (t) => {
  const dir = await directory(t);
  // It is told to end, commits what it has read, and ends in good order.
  const file = await impostor(dir, leading, "read a", '{"first":0,"end":1,"appends":1}', '{"event":"ended","end":1,"code":"stopped","why":"told to end"}');
  await withProgram(file, async () => {
    const session = await lead("mem://x");
    const both = [session.append("a"), session.append("b")];
    assert.deepEqual((await Promise.allSettled(both)).map((o) => o.status), ["fulfilled", "rejected"]);
    await assert.rejects(session.close(), NotCommitted);
    await assert.rejects(lead("mem://x", (s) => void [s.append("a"), s.append("b")]), NotCommitted);
  });
});

test("a number that JavaScript cannot hold is no epoch and no offset", async (t) => {
  const dir = await directory(t);
  for (const first of ['{"event":"leading","epoch":9007199254740993,"end":0,"cursor":""}', '{"event":"leading","epoch":1,"end":9007199254740993,"cursor":""}'])
    await withProgram(await impostor(dir, first, "cat >/dev/null"), async () => {
      await assert.rejects(lead("mem://x"), (e) => e instanceof SessionEnded && /9007199254740/.test(e.message));
    });
  await assert.rejects(lead("mem://x", { epoch: 2 ** 53 }), RangeError);
});

test("a child that reads nothing does not fill the memory", async (t) => {
  const go = join(await directory(t), "go");
  const file = await impostor(await directory(t), '{"event":"leading","epoch":1,"end":0,"cursor":""}', `while [ ! -e ${go} ]; do sleep 0.05; done`, "cat >/dev/null", '{"first":0,"end":8,"appends":8}', '{"event":"ended","end":8}');
  await withProgram(file, async () => {
    const session = await lead("mem://x");
    const large = "x".repeat(8 << 20);
    await session.ready();
    session.append(large);
    let ready = false;
    const waits = session.ready().then(() => (ready = true));
    for (let n = 1; n < 8; n++) session.append(large);
    assert.throws(() => session.append(large), RangeError); // and it counts for nothing
    await new Promise(setImmediate);
    assert(!ready);
    await writeFile(go, "");
    await waits;
    await session.close();
  });
});

test("commit refuses what is no Parquet", async (t) => {
  const file = join(await directory(t), "x.parquet");
  await writeFile(file, "no Parquet");
  const session = await lead(await place(t));
  await assert.rejects(session.commit({ files: [file], cursor: "1" }), { name: "NotCommitted", message: /x\.parquet/ });
  await assert.rejects(session.close(), NotCommitted);
});
