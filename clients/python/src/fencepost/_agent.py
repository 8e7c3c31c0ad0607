"""An agent that serves this process over a unix socket."""

import socket
from urllib.parse import urlencode

from ._errors import Error


class Agent:
    """A session of an agent. It speaks the lines of a child."""

    def __init__(self, path: str, url: str, promise: float, wait: bool) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
            query = urlencode({"url": url, "promise": f"{int(promise * 1000)}ms", "wait": "true" if wait else "false"})
            head = (f"GET /lines?{query} HTTP/1.1", "Host: agent", "Connection: Upgrade", "Upgrade: fencepost-lines", "", "")
            self._socket.sendall("\r\n".join(head).encode())
            self.stdin, self.stdout = self._socket.makefile("wb", 0), self._socket.makefile("rb", 0)
            answer = b""
            while not answer.endswith(b"\r\n\r\n"):
                byte = self.stdout.read(1)  # not more: what follows are the lines
                if not byte or len(answer) > 64 << 10:
                    raise Error(f"the agent at {path} speaks another language")
                answer += byte
            if b" 101 " not in answer.split(b"\r\n", 1)[0]:
                self._socket.settimeout(5)
                raise Error(f"the agent at {path} refuses: {_text(self.stdout.read(64 << 10) or b'')}")
        except (OSError, Error) as e:
            self._socket.close()
            raise e if isinstance(e, Error) else Error(f"no agent answers at {path}: {e}") from e

    def close_input(self) -> None:
        """Tell the agent that there is no more."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended before it has read everything

    def leave(self) -> None:
        """Leave the connection to the parent of this process, which has forked: what is shut down here is shut down there."""
        for f in (self.stdin, self.stdout, self._socket):
            f.close()

    def wait(self) -> tuple[int, str]:
        """Wait for nothing: the agent has closed the connection. Return what a child would say."""
        self.kill()
        return 0, "the connection to the agent is cut"

    def kill(self) -> None:
        """Cut the connection."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is cut already
        self.leave()

    def end(self) -> None:
        """End the session: what the agent has not read is not appended."""
        self.kill()

    def stop(self) -> None:
        """End the session in good order: what was sent is committed."""
        self.close_input()
        self.kill()


def _text(body: bytes) -> str:
    return body.decode(errors="replace").strip()
