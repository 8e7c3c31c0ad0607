// The errors of the package.

/** What went wrong, and what to do. */
export class FencepostError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The session is over. Lead again, and continue after the cursor. */
export class SessionEnded extends FencepostError {
  /**
   * One of the codes of docs/agent.md: fenced, invalid, silent, unread, busy, gone, stopped, denied, failed; or died, if
   * the child has ended without a word.
   */
  readonly code: string;

  constructor(code: string, why: string) {
    super(why);
    this.code = code;
  }
}

/** Another process leads, or the term has expired. Nothing more is appended. */
export class Fenced extends SessionEnded {}

/** The records are not in the log, and never will be. They may be appended again, by the next session. */
export class NotCommitted extends FencepostError {}

/** The records may be in the log or not. Do not append them again: lead again, and look at the cursor. */
export class UnknownOutcome extends FencepostError {}

export function ended(code: string, why: string): SessionEnded {
  return code === "fenced" ? new Fenced(code, why) : new SessionEnded(code, why);
}
