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

    With consumer it begins at the position of that name, and notes it once a second: a record may come again after a
    crash, and up to 64 KiB of records that this program has not handled yet may count as handled.
    """
    return cat(url, start, following(consumer))


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
