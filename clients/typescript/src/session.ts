// Sessions: one term of leadership.

import { resolve as absolute } from "node:path";

import { Child, lines, standardLog, type Log } from "./child.js";
import { ended, FencepostError, NotCommitted, SessionEnded, UnknownOutcome } from "./errors.js";

/** One record, or a cursor: text, or bytes. */
export type Data = string | Uint8Array;

export interface AppendOptions {
  /** The program's position. It becomes part of the log in the same atom. */
  cursor?: Data;
}

export interface CommitOptions extends AppendOptions {
  /** Parquet files of this machine, which are added. Keep them until the promise is settled. */
  files?: readonly string[];
  /** The values of the columns by which the table is partitioned. */
  values?: Readonly<Record<string, string>>;
  /** The keys of files that are removed. */
  remove?: readonly string[];
}

export interface LeadOptions {
  /** A process that is frozen, or that blocks its event loop, for so many milliseconds loses the term. 10,000 by default. */
  promise?: number;
  /** With it the program itself must append, or call progress, at least every so many milliseconds. */
  stall?: number;
  /** With false, lead rejects with SessionEnded and the code busy if another process leads. */
  wait?: boolean;
  /** How many milliseconds the lease of this process is valid if it crashes. */
  validity?: number;
  /** The epoch of fencepost exec: Number(process.env.FENCEPOST_EPOCH). */
  epoch?: number;
  /** Ends the wait, with the signal's reason. */
  signal?: AbortSignal;
  log?: Log;
}

interface Waiting {
  readonly offset: number;
  readonly outcome: Promise<number>;
  readonly resolve: (offset: number) => void;
  readonly reject: (why: FencepostError) => void;
}

const chunk = 64 << 10; // characters that are sent at once
const room = 1 << 20; // characters that wait for the child until ready waits
const most = 64 << 20; // and until append throws
const ignore = () => {};

function member(name: string, data: Data): string {
  if (typeof data !== "string") {
    if (!(data instanceof Uint8Array)) throw new TypeError(`a record or cursor is a string or a Uint8Array, not ${typeof data}`);
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    return `"${name === "text" ? "" : name + "_"}base64":"${bytes.toString("base64")}"`;
  }
  if (!data.isWellFormed()) throw new TypeError("the text has half of a surrogate pair: append such data as a Uint8Array");
  return `"${name}":${JSON.stringify(data)}`;
}

const position = ({ cursor }: AppendOptions) => (cursor === undefined ? "" : "," + member("cursor", cursor));

/** One term. Appends keep their order. */
export class Session implements AsyncDisposable {
  readonly #child: Child;
  readonly #log: Log;
  readonly #done: Promise<void>;
  #epoch = 0;
  #cursor: Data = "";
  #end = 0;
  #next = 0; // the offset of the next record
  #out: string[] = []; // lines that wait for the turn of the event loop that sends them
  #unsent = 0; // characters in #out
  #size = 0; // and with those in the pipe
  #closing = false;
  #waiting: Waiting[] = []; // from #acked
  #acked = 0;
  #last: Promise<unknown> = Promise.resolve();
  #ready: Promise<void> | undefined;
  #wake = ignore;
  #over: SessionEnded | undefined;
  #broken: FencepostError | undefined; // what became of the first append that was not acknowledged
  #clean = false; // the child has said that all is in the history

  /** @internal */
  constructor(args: string[], every: number, log: Log, led: () => void) {
    this.#log = log;
    this.#child = new Child(args, log);
    const timer = every ? setInterval(() => this.#over || this.#closing || this.progress(), every) : undefined;
    this.#done = this.#read(led).finally(() => clearInterval(timer));
  }

  /** The epoch of the term. */
  get epoch(): number {
    return this.#epoch;
  }

  /** The cursor that was committed last when the term began: "" if there is none, bytes if it is no text. */
  get cursor(): Data {
    return this.#cursor;
  }

  /** How many records the log has, as far as this session knows. */
  get end(): number {
    return this.#end;
  }

  /** Why the session is over, or undefined. */
  get ended(): SessionEnded | undefined {
    return this.#over;
  }

  // Appends.

  /**
   * Appends one record, or several in one atom. The promise resolves to the offset of the first one when it is in the
   * history for ever. It rejects with NotCommitted or UnknownOutcome. Nobody needs to await it: flush and close tell too.
   *
   * Throws at once Fenced or SessionEnded if the session is over, TypeError for what is no record, and RangeError if
   * more than 64 MiB wait to be sent: a program that does not await its appends awaits ready() between them.
   */
  append(data: Data | Iterable<Data>, options: AppendOptions = {}): Promise<number> {
    if (typeof data === "string" || data instanceof Uint8Array) return this.#put(`{${member("text", data)}${position(options)}}\n`, 1);
    const all = Array.from(data, (one) => `{${member("text", one)}}`);
    if (!all.length) throw new TypeError("there are no records to append");
    return this.#put(`{"records":[${all.join(",")}]${position(options)}}\n`, all.length);
  }

  /** Changes the table, in one atom: adds Parquet files, and removes files. As append it throws, resolves and rejects. */
  commit(options: CommitOptions): Promise<number> {
    const { files = [], values, remove = [] } = options;
    const message = JSON.stringify({ files: files.map((f) => absolute(f)), values, remove });
    return this.#put(`${message.slice(0, -1)}${position(options)}}\n`, 0);
  }

  /** Resolves when less than 1 MiB waits to be sent, usually at once. */
  ready(): Promise<void> {
    if (this.#size < room || this.#over) return Promise.resolve();
    return (this.#ready ??= new Promise((resolve) => (this.#wake = resolve)));
  }

  /**
   * Waits until everything that was appended is in the history. Rejects with UnknownOutcome if the outcome of any of it
   * is unknown, and otherwise with NotCommitted.
   */
  async flush(): Promise<void> {
    try {
      await this.#last;
    } catch (e) {
      throw this.#broken ?? e;
    }
  }

  /** Says that the program is alive. With stall, call it as often as that, unless you append as often. */
  progress(): void {
    this.#queue('{"progress":true}\n');
  }

  /** Makes way for another process. The session ends soon after; what was appended is committed first. */
  resign(): void {
    this.#queue('{"resign":true}\n');
  }

  // The end.

  /** Ends the session. What was appended is in the history when it resolves; it rejects as flush does, or with ended. */
  async close(): Promise<void> {
    this.#send();
    this.#closing = true;
    this.#child.process.stdin.end();
    await this.#done;
    if (this.#broken) throw this.#broken;
    if (!this.#clean && this.#over) throw this.#over;
  }

  /** Closes the session at the end of a block with await using. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  async stop(): Promise<void> {
    await this.#child.stop();
    await this.#done;
  }

  #put(line: string, records: number): Promise<number> {
    if (this.#over) throw this.#over;
    if (this.#closing) throw ended("stopped", "the session was closed by this program");
    if (this.#size > most) throw new RangeError("more than 64 MiB wait to be sent: await ready(), or what append returns");
    const offset = this.#next;
    this.#next += records;
    let settle!: Pick<Waiting, "resolve" | "reject">;
    const outcome = new Promise<number>((resolve, reject) => (settle = { resolve, reject }));
    this.#waiting.push({ offset, outcome, resolve: settle.resolve, reject: settle.reject });
    this.#last = outcome;
    this.#queue(line);
    return outcome;
  }

  #queue(line: string): void {
    if (this.#over) throw this.#over;
    // Many lines are sent at once when they come fast: after the program's code has had its turn.
    if (!this.#unsent) setImmediate(() => this.#send());
    this.#out.push(line);
    this.#size += line.length;
    this.#unsent += line.length;
    if (this.#unsent >= chunk) this.#send();
  }

  #send(): void {
    const text = this.#out.join("");
    if (!text) return;
    this.#out = [];
    this.#unsent = 0;
    this.#child.process.stdin.write(text, () => {
      this.#size -= text.length;
      if (this.#size < room) this.#makeReady();
    });
  }

  #makeReady(): void {
    this.#wake();
    this.#wake = ignore;
    this.#ready = undefined;
  }

  /** Takes the events of the child until it ends. */
  async #read(led: () => void): Promise<void> {
    let why = "the child has ended without a word";
    try {
      for await (const line of lines(this.#child.process.stdout)) this.#event(JSON.parse(line), led);
    } catch (e) {
      if (this.#child.process.pid !== undefined) why = `the child speaks another language: ${e}`;
      this.#child.process.kill("SIGKILL");
    }
    const said = await this.#child.over;
    if (!this.#over) this.#finish(ended("died", said ? `${why}: ${said}` : why), Infinity);
    led();
  }

  #event(e: any, led: () => void): void {
    switch (e.event) {
      case undefined:
        this.#end = e.end;
        this.#acked += e.appends;
        for (const w of this.#waiting.splice(0, e.appends)) w.resolve(w.offset);
        if (!this.#waiting.length && this.#end !== this.#next)
          throw new FencepostError(`the log ends at ${this.#end}, and this session has counted ${this.#next}`);
        break;
      case "leading":
        // Two epochs that differ must not look the same.
        if (!Number.isSafeInteger(e.epoch) || !Number.isSafeInteger(e.end))
          throw new FencepostError(`the epoch ${e.epoch} or the end ${e.end} is more than a number of JavaScript holds`);
        this.#epoch = e.epoch;
        this.#cursor = e.cursor ?? Buffer.from(e.cursor_base64, "base64");
        this.#end = this.#next = e.end;
        this.#log.info(`leading in epoch ${e.epoch}; the log has ${e.end} records`);
        led();
        break;
      case "ended":
      case "lost":
        this.#clean = e.event === "ended";
        this.#finish(ended(e.code ?? "stopped", e.why ?? "the session was closed by this program"), e.unknown ?? 0);
        break;
      case "waiting":
        this.#log.info(`waiting for ${e.for}, which leads in epoch ${e.epoch}; if it has crashed, until ${e.until}`);
        break;
      case "trouble":
        this.#log.warn(e.why);
        break;
      case "draining":
        this.#log.info("the term is about to end");
    }
  }

  /** Settles everything: of what waits, so much is unknown, and the rest is not committed. */
  #finish(over: SessionEnded, unknown: number): void {
    this.#over = over;
    this.#log.info(`the session has ended: ${over.message}`);
    this.#waiting.forEach((w, i) => {
      const why = new (i < unknown ? UnknownOutcome : NotCommitted)(over.message, { cause: over });
      this.#broken ??= why;
      w.outcome.catch(ignore); // whoever does not ask is told by flush and close
      w.reject(why);
    });
    this.#waiting = [];
    this.#makeReady();
    this.#child.process.stdin.end();
  }
}

type Work<T> = (session: Session) => T | Promise<T>;

/**
 * Waits until this process leads the log at url, and resolves to the session. With a function it is the function's
 * session: it is closed when the function is done, and lead resolves to what that returns, when everything that was
 * appended is in the history. An error of the function comes before one of the session.
 */
export function lead(url: string, options?: LeadOptions): Promise<Session>;
export function lead<T>(url: string, work: Work<T>): Promise<T>;
export function lead<T>(url: string, options: LeadOptions, work: Work<T>): Promise<T>;
export async function lead<T>(url: string, first: LeadOptions | Work<T> = {}, second?: Work<T>): Promise<Session | T> {
  const [options, work] = typeof first === "function" ? [{}, first] : [first, second];
  const session = await begin(url, options);
  if (!work) return session;
  let result: T;
  try {
    result = await work(session);
  } catch (e) {
    await session.close().catch(ignore);
    throw e;
  }
  await session.close();
  return result;
}

async function begin(url: string, options: LeadOptions): Promise<Session> {
  const { promise = 10_000, stall, wait = true, validity, epoch, signal, log = standardLog } = options;
  const silence = Math.floor(stall ?? promise);
  if (!(silence >= 1000)) throw new RangeError(`promise and stall must be at least 1000 milliseconds, not ${silence}`);
  if (epoch !== undefined && !Number.isSafeInteger(epoch)) throw new RangeError(`epoch must be a whole number below 2^53, not ${epoch}`);
  signal?.throwIfAborted();
  const args = ["append", "--protocol", "json", "--promise", `${silence}ms`];
  if (epoch !== undefined) args.push("--epoch", String(epoch));
  else if (!wait) args.push("--no-wait");
  if (validity !== undefined) args.push("--validity", `${validity}ms`);
  const session = await new Promise<Session>((resolve) => {
    const led = () => {
      signal?.removeEventListener("abort", abort);
      resolve(s);
    };
    const s: Session = new Session([...args, "--", url], stall ? 0 : silence / 3, log, led);
    const abort = () => void s.stop();
    signal?.addEventListener("abort", abort);
  });
  if (!session.epoch || signal?.aborted) {
    await session.close().catch(ignore);
    signal?.throwIfAborted();
    throw session.ended;
  }
  return session;
}
