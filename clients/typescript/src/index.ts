/**
 * Exactly-one-writer logs in object stores.
 *
 * A session is one term. It ends when the program ends, and when another process leads. Then lead again, and continue
 * after the cursor. The package starts the program `fencepost` as a child, and speaks JSON with it.
 *
 * @module
 */

export type { Log } from "./child.js";
export { Fenced, FencepostError, NotCommitted, SessionEnded, UnknownOutcome } from "./errors.js";
export { follow, read, tail, type FollowOptions, type LogRecord, type ReadOptions } from "./read.js";
export { lead, type AppendOptions, type CommitOptions, type Data, type LeadOptions, type Session } from "./session.js";
