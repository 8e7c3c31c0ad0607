// Reading a log.

import { Child, lines, standardLog, type Log } from "./child.js";
import { FencepostError } from "./errors.js";

/** One record of the log. */
export interface LogRecord {
  readonly offset: number;
  readonly value: Buffer;
  /** The writer's time of day, in RFC 3339. */
  readonly time: string;
}

export interface ReadOptions {
  /** The offset of the first record. By default that of the oldest one, or the position of the consumer. */
  from?: number;
  /** Ends the iteration with the signal's reason. */
  signal?: AbortSignal;
  log?: Log;
}

export interface FollowOptions extends ReadOptions {
  /**
   * Begin at the position of this name, and note it once a second. A record may come again after a crash, and up to
   * 64 KiB of records that this program has not handled yet may count as handled.
   */
  consumer?: string;
}

/** Yields the records from an offset to the end of the log. */
export function read(url: string, options: ReadOptions = {}): AsyncGenerator<LogRecord, void, undefined> {
  return cat(url, options, []);
}

/** Yields the records, and then each new one as it comes. Leave the loop, or abort the signal, to end it. */
export function follow(url: string, options: FollowOptions = {}): AsyncGenerator<LogRecord, void, undefined> {
  return cat(url, options, ["--follow", ...(options.consumer === undefined ? [] : ["--consumer", options.consumer])]);
}

/** Yields each record that comes from the first step of the loop on, as `follow` does. */
export async function* tail(url: string, options: Omit<ReadOptions, "from"> = {}): AsyncGenerator<LogRecord, void, undefined> {
  const child = new Child(["status", "--json", "--", url], options.log ?? standardLog);
  let said = "";
  for await (const part of child.process.stdout.setEncoding("utf8")) said += part;
  const why = await child.over;
  const none = child.process.exitCode === 66; // there is no log yet
  if (why && !none) throw new FencepostError(why);
  yield* follow(url, { ...options, from: none ? 0 : JSON.parse(said).end });
}

async function* cat(url: string, options: ReadOptions, more: string[]): AsyncGenerator<LogRecord, void, undefined> {
  const { from, signal, log = standardLog } = options;
  signal?.throwIfAborted();
  const child = new Child(["cat", "--json", "--exact", ...more, ...(from === undefined ? [] : ["--from", String(from)]), "--", url], log);
  const abort = () => void child.process.stdout.destroy(signal?.reason);
  signal?.addEventListener("abort", abort);
  let whole = false;
  try {
    let failed = false;
    for await (const line of lines(child.process.stdout)) {
      if ((failed ||= line === "{")) continue; // a document that says why the child fails; so does standard error
      const { offset, text, base64, time } = JSON.parse(line);
      yield { offset, value: text === undefined ? Buffer.from(base64, "base64") : Buffer.from(text), time };
    }
    whole = true;
  } catch (e) {
    signal?.throwIfAborted();
    if (child.process.pid !== undefined) throw e;
    whole = true; // it did not start
  } finally {
    signal?.removeEventListener("abort", abort);
    if (!whole) await child.stop();
  }
  signal?.throwIfAborted();
  const why = await child.over;
  if (why) throw new FencepostError(why);
}
