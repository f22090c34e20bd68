"""Headless Chromium, driven by its DevTools protocol over two pipes, and folders as servers on loopback."""

import base64
import fcntl
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
)  # fmt: skip


class Chromium:
    """Context manager of one browser with one page."""

    def __init__(self, program: str, width: int = 1200, height: int = 900) -> None:
        self.program, self.size = program, (width, height)

    def __enter__(self) -> Self:
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        pipes = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (*os.pipe(), *os.pipe())]
        theirs_in, self.ours_out, self.ours_in, theirs_out = pipes
        place = (f"--user-data-dir={self.folder.name}", "--window-size={},{}".format(*self.size))
        command = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", self.program, *FLAGS, *place]
        self.process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.replies, self.sent, self.session = open(self.ours_in, "rb"), 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.replies.close()
        os.close(self.ours_out)
        self.folder.cleanup()

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a method of the protocol."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.ours_out, json.dumps(message).encode() + b"\0")
        while True:  # events come between replies
            reply = json.loads(self._message())
            if reply.get("id") == self.sent:
                assert "error" not in reply, reply["error"]
                return reply["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript on the page, after its promise."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _message(self) -> bytes:
        parts = []
        while (byte := self.replies.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            parts.append(byte)
        return b"".join(parts)


@contextmanager
def served(folder: Path, replace: dict[str, str] | None = None) -> Iterator[str]:
    """The address of a folder on loopback, to which all other origins may send requests as to a public server.

    Args:
        replace: words of the pages, and what is sent in their place.
    """

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def end_headers(self) -> None:
            self.send_header("Access-Control-Allow-Origin", "*")
            super().end_headers()

        def do_GET(self) -> None:
            path = Path(self.translate_path(self.path))
            path = path / "index.html" if path.is_dir() else path
            if path.suffix != ".html" or not path.is_file():
                return super().do_GET()
            text = path.read_text(encoding="utf-8")
            for old, new in (replace or {}).items():
                text = text.replace(old, new)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())
            return None

        def log_message(self, *_: object) -> None:
            pass

    Handler.extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
