"""Exactly-one-writer logs in object stores.

    with fencepost.lead("s3://bucket/orders") as session:      # waits until this process leads
        for n, word in enumerate(words(skip=int(session.cursor or 0)), int(session.cursor or 0) + 1):
            session.append(word, cursor=str(n))                # returns a future; raises Fenced when deposed
        session.flush()                                        # all of it is in the history, for ever

A session is one term. It ends when the program ends, and when another process leads. Then lead again, and continue
after the cursor. Nothing but the standard library is needed: the package starts the program ``fencepost`` as a child,
and speaks JSON with it.
"""

from ._errors import Error, Fenced, NotCommitted, SessionEnded, UnknownOutcome
from ._read import Record, follow, read, tail
from ._session import Future, Session, lead

__all__ = ["Error", "Fenced", "Future", "NotCommitted", "Record", "Session", "SessionEnded", "UnknownOutcome", "follow", "lead", "read", "tail"]
