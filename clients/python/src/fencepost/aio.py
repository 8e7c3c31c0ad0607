"""The same for asyncio.

    async with fencepost.aio.lead("s3://bucket/orders") as session:
        future = await session.append("a record", cursor="1")
        offset = await future
"""

import asyncio
import collections
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _read, _session
from ._child import Child
from ._session import Data


class Session:
    """One term, for one event loop."""

    def __init__(self, session: _session.Session) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._waiting: collections.deque[tuple[_session.Future, asyncio.Future[int]]] = collections.deque()
        session._listeners.append(self._changed)

    @property
    def epoch(self) -> int:
        """The epoch of the term."""
        return self._session.epoch

    @property
    def cursor(self) -> Data:
        """The cursor that was committed last when the term began."""
        return self._session.cursor

    def _changed(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:
            pass  # the loop is closed: nobody waits

    def _resolve(self) -> None:
        while self._waiting and self._waiting[0][0].done():
            future, waiter = self._waiting.popleft()
            if waiter.cancelled():
                continue
            try:
                waiter.set_result(future.result(0))
            except Exception as e:
                waiter.set_exception(e)
                waiter.exception()  # whoever does not ask is told by the session's end

    def _await(self, future: _session.Future) -> "asyncio.Future[int]":
        waiter: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((future, waiter))
        if future.done():
            self._resolve()
        return waiter

    async def append(self, data: Data | Iterable[Data], cursor: Data | None = None) -> "asyncio.Future[int]":
        """Append; await what it returns for the outcome."""
        if self._session._size >= _session._ROOM:
            return self._await(await asyncio.to_thread(self._session.append, data, cursor))
        return self._await(self._session.append(data, cursor))

    async def commit(
        self, files: Sequence[str | Path] = (), *, values: Mapping[str, str] | None = None, remove: Sequence[str] = (), cursor: Data | None = None
    ) -> "asyncio.Future[int]":
        """Change the table; await what it returns for the outcome."""
        return self._await(self._session.commit(files, values=values, remove=remove, cursor=cursor))

    async def write_parquet(self, table: Any, *, values: Mapping[str, str] | None = None, cursor: Data | None = None) -> "asyncio.Future[int]":
        """Add a table of pyarrow; await what it returns for the outcome."""
        return self._await(await asyncio.to_thread(lambda: self._session.write_parquet(table, values=values, cursor=cursor)))

    async def flush(self) -> None:
        """Wait until everything that was appended is in the history."""
        await asyncio.to_thread(self._session.flush)

    def progress(self) -> None:
        """Say that the program is alive."""
        self._session.progress()

    def resign(self) -> None:
        """Make way for another process."""
        self._session.resign()


class lead:  # noqa: N801 # it reads as the function that it is beside
    """Lead as an asynchronous context manager, with the arguments of fencepost.lead."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url, self._options = url, options

    async def __aenter__(self) -> Session:
        self._session = _session.candidate(self._url, **self._options)
        waiting = asyncio.ensure_future(asyncio.to_thread(self._session._begin))
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:  # nobody would close the session
            await asyncio.to_thread(self._session._child.end)
            await asyncio.wait([waiting])
            if not waiting.exception():
                await asyncio.to_thread(self._session.close, wait=False)
            raise
        return Session(self._session)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self._session.close, wait=error is None)


async def _cat(url: str, start: int | None, more: list[str]) -> AsyncGenerator[_read.Record, None]:
    children: list[Child] = []
    records = _read.cat(url, start, more, children.append)
    step: asyncio.Future[_read.Record | None] | None = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(next, records, None))
            record = await asyncio.shield(step)
            if record is None:
                break
            yield record
    finally:
        if step and not step.done():  # nobody waits any more, and a thread waits for the child
            while not children and not step.done():
                await asyncio.sleep(0.01)
            for child in children:
                await asyncio.to_thread(child.end)
            await asyncio.wait([step])
            step.exception()
        await asyncio.to_thread(records.close)


def read(url: str, start: int | None = None) -> AsyncIterator[_read.Record]:
    """Yield the records to the end of the log."""
    return _cat(url, start, [])


def follow(url: str, start: int | None = None, *, consumer: str | None = None) -> AsyncIterator[_read.Record]:
    """Yield the records, and then each new one as it comes."""
    return _cat(url, start, _read.following(consumer))


async def tail(url: str) -> AsyncGenerator[_read.Record, None]:
    """Yield each record that comes from the first step of the iteration on."""
    first = await asyncio.to_thread(_read.end, url)
    async with contextlib.aclosing(_cat(url, first, _read.following(None))) as records:
        async for record in records:
            yield record


__all__ = ["Session", "follow", "lead", "read", "tail"]
