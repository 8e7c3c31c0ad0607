"""The errors of the package."""


class Error(Exception):
    """What went wrong, and what to do."""


class SessionEnded(Error):
    """The session is over. Lead again, and continue after the cursor.

    ``code`` is one of those of docs/agent.md: fenced, invalid, silent, unread, busy, gone, stopped, denied, failed; or
    died, if the child has ended without a word.
    """

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class Fenced(SessionEnded):
    """Another process leads, or the term has expired. Nothing more is appended."""


class NotCommitted(Error):
    """The records are not in the log, and never will be. They may be appended again, by the next session."""


class UnknownOutcome(Error):
    """The records may be in the log or not. Do not append them again: lead again, and look at the cursor."""


def ended(code: str, why: str) -> SessionEnded:
    """Return the error of a session that has ended."""
    return (Fenced if code == "fenced" else SessionEnded)(code, why)
