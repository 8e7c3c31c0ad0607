"""The program fencepost as a child of this process."""

import collections
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from ._errors import Error

log = logging.getLogger("fencepost")


def program() -> str:
    """Return the path of the program: FENCEPOST_PROGRAM, the one of the wheel, or the one in PATH."""
    own = Path(__file__).with_name("bin") / ("fencepost.exe" if sys.platform == "win32" else "fencepost")
    path = os.environ.get("FENCEPOST_PROGRAM") or (str(own) if own.exists() else shutil.which("fencepost"))
    if not path:
        raise Error("there is no program fencepost: install a wheel that has it, or put it into PATH, or name it in FENCEPOST_PROGRAM")
    return path


class Child:
    """A child with pipes. What it says on standard error goes to logging."""

    def __init__(self, args: list[str]) -> None:
        self.process = subprocess.Popen(
            [program(), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        self.stdin, self.stdout, stderr = self.process.stdin, self.process.stdout, self.process.stderr
        assert self.stdin and self.stdout and stderr
        self.said: collections.deque[str] = collections.deque(maxlen=5)
        self._notes = threading.Thread(target=self._note, args=(stderr,), name="fencepost-notes", daemon=True)
        self._notes.start()

    def _note(self, stderr: IO[bytes]) -> None:
        with stderr:
            for line in stderr:
                text = line.decode(errors="replace").rstrip()
                self.said.append(text)
                log.info("%s", text)

    def kill(self) -> None:
        """End the child at once."""
        self.process.kill()

    def close_input(self) -> None:
        """Tell the child that there is no more."""
        if self.stdin:
            try:
                self.stdin.close()
            except OSError:
                pass  # it has ended before it has read everything

    def leave(self) -> None:
        """Leave the child to the parent of this process, which has forked."""
        self.close_input()

    def wait(self) -> tuple[int, str]:
        """Wait for the end, and return the status and what the child has said last."""
        status = self.process.wait()
        self._notes.join()
        if self.stdout:
            self.stdout.close()
        return status, "; ".join(self.said)

    def end(self) -> None:
        """End the child in good order, also if another thread reads from it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def stop(self) -> None:
        """End the child in good order, and close its pipes."""
        self.end()
        self.close_input()
        self.wait()
