"""Reading a log."""

import binascii
import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from ._child import Child
from ._errors import Error
from ._session import _lines


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log."""

    offset: int
    value: bytes
    time: str  #: the writer's time of day, in RFC 3339


def read(url: str, start: int | None = None) -> Iterator[Record]:
    """Yield the records from an offset, or from the oldest one, to the end of the log."""
    return cat(url, start, [])


def follow(url: str, start: int | None = None, *, consumer: str | None = None) -> Iterator[Record]:
    """Yield the records, and then each new one as it comes. Close the iterator to end it.

    A leader that tells readers (``fencepost agent --readers``) tells this one as soon as a record is in the history.

    With consumer it begins at the position of that name, and notes it once a second: a record may come again after a
    crash, and up to 64 KiB of records that this program has not handled yet may count as handled.
    """
    return cat(url, start, following(consumer))


def tail(url: str) -> Iterator[Record]:
    """Yield each record that comes after this call, as follow does."""
    return follow(url, end(url))


def end(url: str) -> int:
    """Return how many records the log has: 0 if there is none."""
    child = Child(["status", "--json", "--", url])
    assert child.stdout
    said = child.stdout.read()
    status, why = child.wait()
    child.close_input()
    if status not in (0, _NO_LOG):
        raise Error(why or f"the child has ended with status {status}")
    return 0 if status else int(json.loads(said)["end"])


_NO_LOG = 66


def following(consumer: str | None) -> list[str]:
    """Return the arguments of follow."""
    return ["--follow", *(["--consumer", consumer] if consumer else [])]


def cat(url: str, start: int | None, more: list[str], begun: Callable[[Child], None] = lambda _: None) -> Generator[Record, None, None]:
    """Yield the records of a child, of which begun is told."""
    child = Child(["cat", "--json", "--exact", *more, *(["--from", str(start)] if start is not None else []), "--", url])
    done = False
    begun(child)
    try:
        assert child.stdout
        for line in _lines(child.stdout):
            if line == b"{":
                break  # a document that says why the child fails; so does standard error
            d = json.loads(line)
            value = d["text"].encode() if "text" in d else binascii.a2b_base64(d["base64"])
            yield Record(d["offset"], value, d["time"])
        done = True
        status, said = child.wait()
        child.close_input()
        if status:
            raise Error(said or f"the child has ended with status {status}")
    finally:
        if not done:
            child.stop()
