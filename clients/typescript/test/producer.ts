// Appends 1, 2, 3, … to the log that the first argument names, for ever, and notes in the file that the second one names
// what was acknowledged.

import { openSync, writeSync } from "node:fs";

import { FencepostError, lead } from "../src/index.js";

const [url, acked] = process.argv.slice(2) as [string, string];
const out = openSync(acked, "a");
for (;;) {
  try {
    await lead(url, { promise: 1000, validity: 1000 }, async (session) => {
      const under: [number, Promise<number>][] = [];
      for (let n = Number(session.cursor) + 1; ; n++) {
        under.push([n, session.append(String(n), { cursor: String(n) })]);
        if (under.length > 20) {
          const [k, offset] = under.shift()!;
          writeSync(out, `${k} ${await offset}\n`);
        }
      }
    });
  } catch (e) {
    if (!(e instanceof FencepostError)) throw e;
  }
}
