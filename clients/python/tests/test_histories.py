"""Histories: programs and their children are killed and frozen at random. FENCEPOST_HISTORIES says how many; 2 by default.

Several processes append the numbers 1, 2, 3, … each with itself as the cursor. The log must have all of them, in order,
once: no gap, nothing twice, and everything that was acknowledged.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import fencepost

PRODUCER = """
import sys, fencepost
url, acked = sys.argv[1:]
with open(acked, "ab", buffering=0) as out:
    while True:
        try:
            with fencepost.lead(url, promise=1, validity="1s") as session:
                n = int(session.cursor or 0)
                futures = []
                while True:
                    n += 1
                    futures.append((n, session.append(str(n), cursor=str(n))))
                    while len(futures) > 20 or futures and futures[0][1].done():
                        k, f = futures.pop(0)
                        offset = f.result()
                        out.write(f"{k} {offset}\\n".encode())
        except fencepost.Error:
            pass
"""


def children(pid: int) -> list[int]:
    """Return the processes that one has started, on Linux."""
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def end(p: subprocess.Popen[bytes]) -> None:
    own = children(p.pid)
    p.kill()
    p.wait()
    for c in own:
        try:
            os.kill(c, signal.SIGKILL)
        except ProcessLookupError:
            pass


def history(tmp: Path, seed: int) -> None:
    rng = random.Random(seed)
    url = f"file://{tmp}/log"
    env = dict(os.environ, PYTHONPATH=str(Path(fencepost.__file__).parent.parent))
    acked = [tmp / f"acked-{i}" for i in range(3)]

    def start(i: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", PRODUCER, url, str(acked[i])], env=env, stderr=subprocess.DEVNULL)

    producers = [start(i) for i in range(3)]
    try:
        for _ in range(6):
            before = sum(f.stat().st_size for f in acked if f.exists())
            deadline = time.monotonic() + 60
            while sum(f.stat().st_size for f in acked if f.exists()) == before:
                assert time.monotonic() < deadline, f"seed {seed}: nobody appends"
                time.sleep(0.01)  # until somebody leads and appends
            i = rng.randrange(3)
            victims = [producers[i].pid, *children(producers[i].pid)]
            victim = rng.choice(victims)
            try:
                if rng.random() < 0.5:
                    os.kill(victim, signal.SIGKILL)
                else:  # frozen; awake again when others may have led
                    os.kill(victim, signal.SIGSTOP)
                    time.sleep(rng.random() * 2)
                    os.kill(victim, signal.SIGCONT)
            except ProcessLookupError:
                pass
            if producers[i].poll() is not None:
                producers[i] = start(i)
    finally:
        for p in producers:
            end(p)
    records = [int(r.value) for r in fencepost.read(url)]
    assert records == list(range(1, len(records) + 1)), f"seed {seed}: a gap, or something twice"
    for f in acked:
        if not f.exists():
            continue
        for line in f.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                k, offset = map(int, line.split())
                assert records[offset] == k, f"seed {seed}: {k} was acknowledged at {offset}"


def test_histories(tmp_path: Path) -> None:
    first = int(os.environ.get("FENCEPOST_SEED", "1"))
    for seed in range(first, first + int(os.environ.get("FENCEPOST_HISTORIES", "2"))):
        tmp = tmp_path / str(seed)
        tmp.mkdir()
        history(tmp, seed)
