"""What one session promises, with the real program."""

import asyncio
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import fencepost
import fencepost.aio
from fencepost import _session
from fencepost._child import program
from fencepost._session import _lines

AWKWARD: list[bytes | str] = ["", b"", "a\n", 'quote " and \\', "\x00\x1f", "\u2028\ufffd😀", b"\xff\x00", "ä" * 10_000]


def as_bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data


def values(url: str, start: int | None = None) -> list[bytes]:
    return [r.value for r in fencepost.read(url, start)]


def run(*args: str) -> None:
    subprocess.run([program(), *args], check=True, capture_output=True)


def test_example(url: str) -> None:
    words = ["one", "two", "three"]
    for _ in range(2):  # the second time it does nothing
        with fencepost.lead(url) as session:
            skip = int(session.cursor or 0)
            for n, word in enumerate(words[skip:], skip + 1):
                session.append(word, cursor=str(n))
            session.flush()
    assert values(url) == [b"one", b"two", b"three"]


def test_records_come_back(url: str) -> None:
    with fencepost.lead(url) as session:
        futures = [session.append(r) for r in AWKWARD]
        futures.append(session.append(iter(AWKWARD), cursor=b"\xff"))
        assert [f.result(60) for f in futures] == list(range(len(AWKWARD) + 1))
        assert all(f.done() for f in futures)
    assert values(url) == [as_bytes(r) for r in AWKWARD] * 2
    assert values(url, 2 * len(AWKWARD) - 1) == [as_bytes(AWKWARD[-1])]
    with fencepost.lead(url) as session:
        assert session.cursor == b"\xff" and session.end == 2 * len(AWKWARD) and session.epoch == 2


def test_what_is_no_text_is_refused_here(url: str) -> None:
    with fencepost.lead(url) as session:
        with pytest.raises(ValueError):
            session.append("\udcff")
        with pytest.raises(ValueError):
            session.append([])
        assert session.append("a").result(60) == 0


def test_deposed(url: str) -> None:
    session = fencepost.lead(url, validity="2s")
    session.append("a", cursor="1").result(60)
    run("step-down", "--immediate", url)
    with fencepost.lead(url) as other:
        assert other.cursor == "1" and other.epoch > session.epoch
        with pytest.raises((fencepost.NotCommitted, fencepost.Fenced)) as e:
            while True:
                session.append("zombie", cursor="2").result(60)
        assert isinstance(e.value, fencepost.Fenced) or isinstance(e.value.__cause__, fencepost.Fenced)
        with pytest.raises(fencepost.Fenced):
            session.append("zombie")
        other.append("b", cursor="2")
    with pytest.raises((fencepost.NotCommitted, fencepost.Fenced)):
        session.close()
    assert values(url) == [b"a", b"b"]


def test_cursor_must_not_go_down(url: str) -> None:
    session = fencepost.lead(url)
    session.append("a", cursor="7")
    future = session.append("b", cursor="6")
    with pytest.raises(fencepost.NotCommitted, match="must not go down"):
        future.result(60)
    with pytest.raises(fencepost.NotCommitted):
        session.close()
    assert session.ended and session.ended.code == "invalid"
    assert values(url) == [b"a"]


def test_busy(url: str) -> None:
    with fencepost.lead(url), pytest.raises(fencepost.SessionEnded) as e:
        fencepost.lead(url, wait=False)
    assert e.value.code == "busy"


def test_child_killed(url: str) -> None:
    session = fencepost.lead(url, validity="1s")
    session.append("a", cursor="1").result(60)
    session._child.kill()
    future = None
    with pytest.raises((fencepost.UnknownOutcome, fencepost.SessionEnded)):
        while True:
            future = session.append("b", cursor="2")
            future.result(60)
    with pytest.raises((fencepost.UnknownOutcome, fencepost.SessionEnded)):
        session.close()
    with fencepost.lead(url) as again:
        assert int(str(again.cursor)) == again.end


def test_flush_says_what_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever appends again what flush says is not committed would append b twice."""
    impostor = tmp_path / "impostor"
    impostor.write_text(
        "#!/bin/sh\n"
        """echo '{"event":"leading","epoch":1,"end":0,"cursor":""}'; read a; read b; read c\n"""
        """echo '{"first":0,"end":1,"appends":1}'\n"""
        """echo '{"event":"lost","code":"fenced","unknown":1,"not_committed":1,"why":"another leads"}'\n"""
    )
    impostor.chmod(0o755)
    monkeypatch.setenv("FENCEPOST_PROGRAM", str(impostor))
    session = fencepost.lead("mem://x")
    a, b, c = (session.append(r) for r in "abc")
    assert a.result(60) == 0
    with pytest.raises(fencepost.UnknownOutcome):
        b.result(60)
    with pytest.raises(fencepost.NotCommitted):
        c.result(60)
    with pytest.raises(fencepost.UnknownOutcome):
        session.flush()
    with pytest.raises(fencepost.UnknownOutcome):
        session.close()


def impostor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *script: str) -> None:
    """Put another program into the place of fencepost. It notes its process id."""
    path = tmp_path / "impostor"
    path.write_text("\n".join(["#!/bin/sh", f"echo $$ > {tmp_path}/pid", *script, ""]))
    path.chmod(0o755)
    monkeypatch.setenv("FENCEPOST_PROGRAM", str(path))


LEADING = """echo '{"event":"leading","epoch":1,"end":0,"cursor":""}'"""


def test_close_says_what_was_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child is told to end, commits what it has read, and ends in good order. b was not read."""
    commit = """read a; echo '{"first":0,"end":1,"appends":1}'; read b"""
    impostor(tmp_path, monkeypatch, LEADING, commit, """echo '{"event":"ended","end":1,"code":"stopped","why":"it was told to end"}'""")
    with pytest.raises(fencepost.NotCommitted), fencepost.lead("mem://x") as session:
        a, b = session.append("a"), session.append("b")
    assert a.result(60) == 0
    with pytest.raises(fencepost.NotCommitted):
        b.result(60)


@pytest.mark.parametrize("event", ['{"first":0}', "[]", '{"event":"leading"}', "no JSON"])
def test_child_that_speaks_another_language(event: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    impostor(tmp_path, monkeypatch, LEADING, f"read a; echo '{event}'; exec sleep 600")
    session = fencepost.lead("mem://x")
    with pytest.raises(fencepost.UnknownOutcome):
        session.append("a").result(60)
    with pytest.raises(fencepost.UnknownOutcome):
        session.close()


def test_lines_that_are_long_or_cut() -> None:
    """A line may come in many pieces. What is left at the end is no line: the child has died meanwhile."""
    for size in (1, 3, 1 << 16):
        text = b"a\n\n" + b"b" * 100_000 + b"\n" + b"c"
        pieces = [text[i : i + size] for i in range(0, len(text), size)]

        class Pipe:
            def read(self, _: int) -> bytes:
                return pieces.pop(0) if pieces else b""

        assert list(_lines(Pipe())) == [b"a", b"", b"b" * 100_000]


def test_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of os.fork is told that it has no session, and does not keep that of its parent alive."""
    impostor(tmp_path, monkeypatch, LEADING, "cat >/dev/null", """echo '{"event":"ended","end":0}'""")
    session = fencepost.lead("mem://x")
    to_parent, told = os.pipe()
    from_parent, tell = os.pipe()
    if not (pid := os.fork()):
        signal.alarm(60)
        try:
            session.append("a").result(10)
        except fencepost.SessionEnded as e:
            os.write(told, str(e).encode())
        except BaseException as e:
            os.write(told, repr(e).encode())
        os.close(tell)
        os.read(from_parent, 1)
        os._exit(0)
    assert b"fork" in os.read(to_parent, 1000)
    session.close()  # although the child lives
    os.close(tell)
    os.waitpid(pid, 0)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def cancelled(task: asyncio.Task[None], when: Callable[[], bool]) -> None:
    while not when():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_asyncio_lead_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives up the wait does not lead later, and the program ends."""
    impostor(tmp_path, monkeypatch, "exec sleep 600")

    async def wait() -> None:
        async with fencepost.aio.lead("mem://x"):
            raise AssertionError

    async def main() -> None:
        task = asyncio.create_task(wait())
        await cancelled(task, lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
        assert gone(int((tmp_path / "pid").read_text()))

    asyncio.run(main())


def test_asyncio_follow_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = """echo '{"offset":0,"text":"a","time":"2026-11-29T00:00:00Z"}'"""
    impostor(tmp_path, monkeypatch, record, "exec sleep 600")

    got: list[bytes] = []

    async def reads() -> None:
        async for r in fencepost.aio.follow("mem://x"):
            got.append(r.value)

    async def main() -> None:
        await cancelled(asyncio.create_task(reads()), lambda: got == [b"a"])
        assert gone(int((tmp_path / "pid").read_text()))

    asyncio.run(main())


def test_frozen_program_loses_the_term(url: str, tmp_path: Path) -> None:
    """A program that is stopped, and not dead, makes way."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, fencepost\n"
        "s = fencepost.lead(sys.argv[1], promise=1)\n"
        "s.append('a', cursor='1').result()\n"
        "print('leads', flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    env = dict(os.environ, PYTHONPATH=str(Path(fencepost.__file__).parent.parent))
    with subprocess.Popen(["python3", str(script), url], stdout=subprocess.PIPE, env=env) as p:
        assert p.stdout and p.stdout.readline() == b"leads\n"
        os.kill(p.pid, signal.SIGSTOP)
        try:
            with fencepost.lead(url) as session:
                assert session.cursor == "1"
        finally:
            p.kill()


def test_stall(url: str) -> None:
    """With stall, a program that does nothing loses the term although its process lives."""
    session = fencepost.lead(url, stall=1)
    for _ in range(3):
        session.progress()
    with fencepost.lead(url):
        pass
    with pytest.raises(fencepost.SessionEnded):
        session.close()
    assert session.ended and session.ended.code == "silent"


def test_follow(url: str) -> None:
    got: list[bytes] = []
    both = threading.Event()

    def reader() -> None:
        for record in fencepost.follow(url):
            got.append(record.value)
            if len(got) == 2:
                break
        both.set()

    with fencepost.lead(url) as session:
        thread = threading.Thread(target=reader)
        thread.start()
        session.append("a")
        session.append("b")
        assert both.wait(60)
        thread.join()
    assert got == [b"a", b"b"]


def test_tail(url: str) -> None:
    records = fencepost.tail(url)  # of a log that is not there yet
    with fencepost.lead(url) as session:
        session.append(["a", "b"]).result(60)
        later = fencepost.tail(url)
        session.append("c").result(60)
        assert next(later).value == b"c"
        assert next(records).offset == 0

    async def first() -> int:
        async for record in fencepost.aio.tail(url):
            return record.offset
        return -1

    async def one() -> int:
        task = asyncio.create_task(first())
        async with fencepost.aio.lead(url) as session:
            while not task.done():  # it has not seen the end yet
                await (await session.append("d"))
        return await task

    assert asyncio.run(one()) >= 3


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "own" / "agent.sock"
    with subprocess.Popen([program(), "agent", "--listen", f"unix:{path}"], stderr=subprocess.PIPE) as process:
        assert process.stderr
        while b"serving at" not in process.stderr.readline():
            pass
        drain = threading.Thread(target=process.stderr.read)
        drain.start()
        yield str(path)
        process.terminate()
        drain.join()


def test_agent(url: str, agent: str) -> None:
    with fencepost.lead(url, agent=agent) as session:
        futures = [session.append(r, cursor=str(n)) for n, r in enumerate(AWKWARD)]
        session.flush()
        assert [f.result(60) for f in futures] == list(range(len(AWKWARD)))
        with pytest.raises(fencepost.SessionEnded) as busy:
            fencepost.lead(url, agent=agent, wait=False)
        assert busy.value.code == "busy"
    with fencepost.lead(url, agent=agent) as session:
        assert session.cursor == str(len(AWKWARD) - 1) and session.end == len(AWKWARD) and session.epoch == 2
        session.append("the last one")  # the end of the input commits it
    assert values(url) == [*map(as_bytes, AWKWARD), b"the last one"]
    with pytest.raises(fencepost.Error, match="no agent answers"):
        fencepost.lead(url, agent=agent + "x")
    with pytest.raises(fencepost.Error, match="refuses: .*no-such-scheme"):
        fencepost.lead("no-such-scheme://x", agent=agent)


def test_read_of_nothing(url: str) -> None:
    with pytest.raises(fencepost.Error):
        values(url)


def test_logging(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fencepost")
    with fencepost.lead(url):
        pass
    assert "leading in epoch 1" in caplog.text


def test_asyncio(url: str) -> None:
    async def main() -> None:
        async with fencepost.aio.lead(url) as session:
            assert session.epoch == 1 and session.cursor == ""
            futures = [await session.append(str(n), cursor=str(n)) for n in range(1000)]
            await session.flush()
            assert await asyncio.gather(*futures) == list(range(1000))
        assert [r.value async for r in fencepost.aio.read(url, 998)] == [b"998", b"999"]

    asyncio.run(main())


def test_commit_refuses_what_is_no_parquet(url: str, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    file.write_text("no Parquet")
    session = fencepost.lead(url)
    with pytest.raises(fencepost.NotCommitted, match="x.parquet"):
        session.commit([file], cursor="1").result(60)
    with pytest.raises(fencepost.NotCommitted):
        session.close()


def test_progress_is_written_whole() -> None:
    """A signal may cut a write of a carrier: what shows that the program is alive is written to its end all the same."""
    read, write = os.pipe()
    written: list[bytes] = []

    class Cut:
        def write(self, data: bytes) -> int:
            written.append(bytes(data[:5]))
            if len(written) == 4:
                os.close(write)
            return len(written[-1])

    class Carrier:
        stdin, stdout = Cut(), os.fdopen(read, "rb", 0)

        def close_input(self) -> None: ...
        def leave(self) -> None: ...
        def kill(self) -> None: ...
        def wait(self) -> tuple[int, str]:
            self.stdout.close()
            return 0, "it is over"

    session = _session.Session(cast(Any, Carrier()), 0.01)
    session._threads[1].join(5)
    session.close(wait=False)
    assert b"".join(written).startswith(b'{"progress":true}\n')
