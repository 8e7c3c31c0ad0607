"""Sessions: one term of leadership."""

import binascii
import json
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from json.encoder import encode_basestring
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ._agent import Agent
from ._child import Child, log
from ._errors import Error, NotCommitted, SessionEnded, UnknownOutcome, ended

Data = bytes | str
_ROOM = 4 << 20  # bytes that wait for the child
_PAUSE = "no outcome within the timeout; the append goes on"


def _record(data: Data) -> str:
    if isinstance(data, str):
        return '"text":' + encode_basestring(data)
    return '"base64":"' + binascii.b2a_base64(data, newline=False).decode("ascii") + '"'


def _cursor(cursor: Data | None) -> str:
    if cursor is None:
        return ""
    if isinstance(cursor, str):
        return ',"cursor":' + encode_basestring(cursor)
    return ',"cursor_base64":"' + binascii.b2a_base64(cursor, newline=False).decode("ascii") + '"'


class Future:
    """The outcome of an append, now or later."""

    __slots__ = ("_number", "_session", "offset")

    def __init__(self, session: "Session", number: int, offset: int) -> None:
        self._session, self._number = session, number
        #: The offset of the first record, if the append is committed.
        self.offset = offset

    def done(self) -> bool:
        """Report whether result would return at once."""
        return self._session._acked > self._number or self._session._over is not None

    def result(self, timeout: float | None = None) -> int:
        """Return the offset of the first record once it is in the history for ever.

        Raises NotCommitted, UnknownOutcome, or TimeoutError: then the append goes on.
        """
        session = self._session
        if session._acked <= self._number:
            with session._changed:
                if not session._changed.wait_for(self.done, timeout):
                    raise TimeoutError(_PAUSE)
        if session._acked > self._number:
            return self.offset
        assert session._over
        if self._number < session._acked + session._unknown:
            raise UnknownOutcome(str(session._over)) from session._over
        raise NotCommitted(str(session._over)) from session._over


class Session:
    """One term. Methods may be called by several threads; appends by one thread keep their order."""

    def __init__(self, child: Child | Agent, every: float) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # acks, the end, room
        self._out: list[bytes] = []
        self._size = 0
        self._idle = True
        self._closing = False
        self._wake = threading.Semaphore(0)
        self._every = every
        self._sent = self._acked = self._unknown = 0
        self._led = False
        self._over: SessionEnded | None = None
        self._clean = False  # the child has said that all is in the history
        self._listeners: list[Callable[[], None]] = []
        self._temporary: list[tuple[int, Path]] = []
        self._next = 0
        #: The epoch of the term.
        self.epoch = 0
        #: The cursor that was committed last when the term began: "" if there is none, bytes if it is no text.
        self.cursor: Data = ""
        #: How many records the log has, as far as this session knows.
        self.end = 0
        self._child = child
        self._threads = [threading.Thread(target=f, name="fencepost", daemon=True) for f in (self._write, self._read)]
        for t in self._threads:
            t.start()
        _sessions.add(self)

    def _begin(self) -> Self:
        """Wait until the term begins."""
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._led or self._over)
        except BaseException:
            self._child.stop()
            raise
        if self._over:
            over = self._over
            self.close(wait=False)
            raise over
        return self

    # Appends.

    def append(self, data: Data | Iterable[Data], cursor: Data | None = None) -> Future:
        """Append one record, or several in one atom, with the program's position.

        It returns at once, unless much waits to be sent. Raises Fenced or SessionEnded if the session is over.
        """
        if isinstance(data, (str, bytes, bytearray, memoryview)):
            line, records = "{" + _record(data if isinstance(data, str) else bytes(data)) + _cursor(cursor) + "}\n", 1
        else:
            all_ = ["{" + _record(r) + "}" for r in data]
            if not all_:
                raise ValueError("there are no records to append")
            line, records = '{"records":[' + ",".join(all_) + "]" + _cursor(cursor) + "}\n", len(all_)
        return self._put(line.encode(), records)

    def commit(
        self,
        files: Sequence[str | Path] = (),
        *,
        values: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
        cursor: Data | None = None,
    ) -> Future:
        """Change the table: add Parquet files of this machine, and remove files by their keys, in one atom.

        values are those of the columns by which the table is partitioned. Keep the files until the future is done.
        """
        message: dict[str, Any] = {"files": [str(Path(f).absolute()) for f in files], "remove": list(remove)}
        if values:
            message["values"] = dict(values)
        return self._put((json.dumps(message)[:-1] + _cursor(cursor) + "}\n").encode(), 0)

    def write_parquet(self, table: Any, *, values: Mapping[str, str] | None = None, cursor: Data | None = None) -> Future:
        """Add a table of pyarrow to the log's table, as one file. It needs pyarrow."""
        import pyarrow.parquet

        with tempfile.NamedTemporaryFile(prefix="fencepost-", suffix=".parquet", delete=False) as f:
            path = Path(f.name)
        try:
            pyarrow.parquet.write_table(table, path)
            future = self.commit([path], values=values, cursor=cursor)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        with self._lock:
            self._temporary.append((future._number, path))
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was appended is in the history.

        Raises UnknownOutcome if the outcome of any of it is unknown, and otherwise what Future.result raises.
        """
        with self._lock:
            last = self._sent - 1
        if last < 0:
            return
        try:
            Future(self, last, 0).result(timeout)
        except NotCommitted:
            Future(self, self._acked, 0).result()  # what was appended first is unknown, if anything is
            raise

    def progress(self) -> None:
        """Say that the program is alive. Call it as often as lead was told with stall, unless you append as often."""
        self._send(b'{"progress":true}\n')

    def resign(self) -> None:
        """Make way for another process. The session ends soon after; what was appended is committed first."""
        self._send(b'{"resign":true}\n')

    @property
    def ended(self) -> SessionEnded | None:
        """Why the session is over, or None."""
        return self._over

    # The end.

    def close(self, *, wait: bool = True) -> None:
        """End the session. With wait, everything that was appended is in the history when it returns."""
        self._closing = True
        self._wake.release()
        for t in self._threads:
            t.join()
        for _, path in self._temporary:
            path.unlink(missing_ok=True)
        self._temporary.clear()
        if wait and self._acked < self._sent:
            self.flush()
        if wait and not self._clean and self._over:
            raise self._over

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(wait=error is None)

    def _forked(self) -> None:
        """Leave the session to the parent of this process, whose threads are not here."""
        self._lock = threading.Lock()  # somebody may have held the other one
        self._changed = threading.Condition(self._lock)
        self._threads, self._temporary, self._listeners = [], [], []
        self._unknown = self._sent - self._acked
        self._over = ended("gone", "this is a child of os.fork, and the session is its parent's; lead again here")
        self._child.leave()  # or it would not end with the parent

    # What the threads do.

    def _put(self, line: bytes, records: int) -> Future:
        with self._lock:
            if self._over is None and self._size >= _ROOM:
                self._changed.wait_for(lambda: self._over or self._size < _ROOM)
            if self._over:
                raise self._over
            if self._closing:
                raise ended("stopped", "the session was closed by this program")
            future = Future(self, self._sent, self._next)
            self._sent += 1
            self._next += records
            self._queue(line)
        return future

    def _send(self, line: bytes) -> None:
        with self._lock:
            if self._over:
                raise self._over
            self._queue(line)

    def _queue(self, line: bytes) -> None:
        self._out.append(line)
        self._size += len(line)
        if self._idle:
            self._idle = False
            self._wake.release()

    def _write(self) -> None:
        """Send lines to the child, many at once when they come fast, and show that this process is not frozen."""
        pipe = self._child.stdin
        assert pipe
        try:
            while True:
                with self._lock:
                    out, self._out, self._size = self._out, [], 0
                    self._idle = not out
                    if out:
                        self._changed.notify_all()
                if not out:
                    if self._closing or self._over:
                        break
                    if self._wake.acquire(timeout=self._every or None):
                        continue
                    out = [b'{"progress":true}\n']
                data = memoryview(b"".join(out))
                while data:  # a signal may cut a write, of any line
                    data = data[pipe.write(data) or 0 :]
        except (OSError, ValueError):
            pass  # the child has ended, and says why
        self._child.close_input()

    def _read(self) -> None:
        """Take the events of the child until it ends."""
        assert self._child.stdout
        why = ended("died", "the child has ended without a word")
        try:
            for line in _lines(self._child.stdout):
                self._event(json.loads(line))
        except Exception as e:
            why = ended("died", f"the child speaks another language: {e!r}")
            self._child.kill()
        status, said = self._child.wait()
        with self._changed:
            if not self._over:
                self._over = ended("died", f"{why} (status {status}): {said}")
                self._unknown = self._sent - self._acked
            self._changed.notify_all()
        self._wake.release()
        self._tell()

    def _event(self, e: dict[str, Any]) -> None:
        kind = e.get("event")
        if kind is None:
            with self._changed:
                self._acked += e["appends"]
                self.end = e["end"]
                if self._acked == self._sent and self.end != self._next:
                    raise Error(f"the log ends at {self.end}, and this session has counted {self._next}")
                self._changed.notify_all()
            while self._temporary and self._temporary[0][0] < self._acked:
                self._temporary.pop(0)[1].unlink(missing_ok=True)
        elif kind == "leading":
            with self._changed:
                self._led, self.epoch, self.end, self._next = True, e["epoch"], e["end"], e["end"]
                self.cursor = e["cursor"] if "cursor" in e else binascii.a2b_base64(e["cursor_base64"])
                self._changed.notify_all()
            log.info("leading in epoch %d; the log has %d records", self.epoch, self.end)
        elif kind in ("ended", "lost"):
            with self._changed:
                self._clean = kind == "ended"
                self._unknown = e.get("unknown", 0)
                self._over = ended(e.get("code", "stopped"), e.get("why", "the session was closed by this program"))
                self._changed.notify_all()
            log.log(20 if self._clean else 30, "the session has ended: %s", self._over)
        elif kind == "waiting":
            log.info("waiting for %s, which leads in epoch %d; if it has crashed, until %s", e["for"], e["epoch"], e["until"])
        elif kind == "trouble":
            log.warning("%s", e["why"])
        elif kind == "draining":
            log.info("the term is about to end")
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _lines(pipe: Any) -> Iterable[bytes]:
    rest: list[bytes] = []
    while data := pipe.read(64 << 10):
        first, *more = data.split(b"\n")
        rest.append(first)
        if more:
            yield b"".join(rest)
            yield from more[:-1]
            rest = more[-1:]


_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _forked() -> None:
    for session in list(_sessions):
        session._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def lead(
    url: str,
    *,
    promise: float = 10.0,
    stall: float | None = None,
    wait: bool = True,
    validity: str | None = None,
    epoch: int | None = None,
    agent: str | None = None,
) -> Session:
    """Wait until this process leads the log at url, and return the session.

    A process that is frozen for longer than promise seconds loses the term. With stall, the program itself must append or
    call progress so often: then a program that hangs loses the term too. wait=False raises SessionEnded with the code
    busy if another process leads. epoch is that of fencepost exec: int(os.environ["FENCEPOST_EPOCH"]).

    With agent, the path of the unix socket of a ``fencepost agent``, that process leads for this one, instead of a child.
    """
    return candidate(url, promise=promise, stall=stall, wait=wait, validity=validity, epoch=epoch, agent=agent)._begin()


def candidate(
    url: str,
    *,
    promise: float = 10.0,
    stall: float | None = None,
    wait: bool = True,
    validity: str | None = None,
    epoch: int | None = None,
    agent: str | None = None,
) -> Session:
    """Return the session of lead, whose term has not begun."""
    seconds = stall or promise
    if seconds < 1:
        raise ValueError(f"promise and stall must be at least 1 second, not {seconds}")
    every = 0.0 if stall else seconds / 3
    if agent is not None:
        if validity or epoch is not None:
            raise ValueError("validity and epoch are for a child; the agent has its own")
        return Session(Agent(agent, url, seconds, wait), every)
    args = ["append", "--protocol", "json", "--promise", f"{int(seconds * 1000)}ms"]
    if epoch is not None:
        args += ["--epoch", str(epoch)]
    elif not wait:
        args.append("--no-wait")
    if validity:
        args += ["--validity", validity]
    return Session(Child([*args, "--", url]), every)

