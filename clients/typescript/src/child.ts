// The program fencepost as a child of this process.

import { spawn, type ChildProcessByStdio } from "node:child_process";
import { existsSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { debuglog, stripVTControlCharacters } from "node:util";

/** Where this package says what happens. The console is one, and so are most loggers. */
export interface Log {
  info(text: string): void;
  warn(text: string): void;
}

const debug = debuglog("fencepost");

/** Shows all with NODE_DEBUG=fencepost, and warnings always. */
export const standardLog: Log = {
  info: (text) => debug("%s", text),
  warn: (text) => process.emitWarning(text, "FencepostWarning"),
};

/** The path of the program: FENCEPOST_PROGRAM, the one of this package, or the one in PATH. */
function program(): string {
  const own = fileURLToPath(new URL("../../bin/fencepost" + (process.platform === "win32" ? ".exe" : ""), import.meta.url));
  return process.env["FENCEPOST_PROGRAM"] || (existsSync(own) ? own : "fencepost");
}

/** The lines of a stream, whose chunks end anywhere. What is left at its end is no line: the child has died meanwhile. */
export async function* lines(stream: AsyncIterable<Buffer>): AsyncGenerator<string, void, undefined> {
  let rest: Buffer[] = [];
  for await (const chunk of stream) {
    let begin = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, begin)) {
      const line = chunk.subarray(begin, end);
      yield rest.length ? Buffer.concat([...rest, line]).toString() : line.toString();
      rest = [];
      begin = end + 1;
    }
    if (begin < chunk.length) rest.push(chunk.subarray(begin));
  }
}

/** A child with pipes. What it says on standard error goes to the log. */
export class Child {
  readonly process: ChildProcessByStdio<Writable, Readable, Readable>;
  /** Resolves when the child has ended and its pipes are closed: to "" after success, else to what it has said last. */
  readonly over: Promise<string>;

  constructor(args: string[], log: Log) {
    // A Ctrl-C at the terminal is for this program. The child ends in good order at the end of its input.
    const child = spawn(program(), args, { stdio: ["pipe", "pipe", "pipe"], detached: process.platform !== "win32", windowsHide: true });
    this.process = child;
    child.stdin.on("error", () => {}); // the child has ended, and says why
    const said: string[] = [];
    const notes = (async () => {
      for await (const line of lines(child.stderr)) {
        const text = stripVTControlCharacters(line).trimEnd();
        said.push(text);
        if (said.length > 5) said.shift();
        log.info(text);
      }
    })().catch(() => {});
    this.over = new Promise((resolve) => {
      child.on("error", (e: NodeJS.ErrnoException) => {
        if (child.pid !== undefined) return; // a signal could not be sent; the child has ended
        const hint = "install a package that has the program, or put it into PATH, or name it in FENCEPOST_PROGRAM";
        resolve(`the program fencepost does not start: ${e.message}: ${hint}`);
      });
      child.on("close", (status, signal) => {
        if (child.pid === undefined) return;
        void notes.then(() => resolve(status === 0 ? "" : `${said.join("; ")} (${signal ?? `status ${status}`})`.trimStart()));
      });
    });
  }

  /** Ends the child in good order: what it has read is committed first. */
  async stop(): Promise<void> {
    this.process.kill();
    this.process.stdin.end();
    this.process.stdout.resume();
    const late = setTimeout(() => this.process.kill("SIGKILL"), 10_000);
    await this.over;
    clearTimeout(late);
  }
}
