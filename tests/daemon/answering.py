"""An HTTP server on this machine that does what a test says: answers, hangs, sends too much, sends nonsense."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.waiting import WAIT_LIMIT


@dataclass
class Request:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answering:
    """What the server does (``answer`` gives status and body) and what it was asked; see ``server``."""

    url: str = ""
    answer: Callable[[Request], tuple[int, bytes]] = lambda _: (200, b"{}")
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    hanging: threading.Event = field(default_factory=threading.Event)
    """Set once a request hangs."""
    released: threading.Event = field(default_factory=threading.Event)
    raw: bytes | None = None
    """What is written instead of an answer; the connection is closed after it."""

    def hang(self, request: Request) -> tuple[int, bytes]:
        """Answer only when the test is over."""
        self.hanging.set()
        self.released.wait(WAIT_LIMIT)
        return 200, b"late"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Connections that wait to be accepted; beyond the usual five a busy machine resets them."""
    told: Answering

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.told.connections += 1

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing goes to the terminal."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        told = self.server.told
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, self.path, dict(self.headers.items()), body)
        told.requests.append(request)
        if told.raw is not None:
            self.wfile.write(told.raw)
            self.close_connection = True
            return
        status, answer = told.answer(request)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@contextmanager
def server() -> Iterator[Answering]:
    """A server for the time of a test."""
    with _Server(("127.0.0.1", 0), _Handler) as httpd:
        told = httpd.told = Answering(f"http://127.0.0.1:{httpd.server_address[1]}")
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield told
        finally:
            told.released.set()
            httpd.shutdown()
            thread.join()


_UNHEARD = socket.socket()
"""A bound socket that does not listen: connections to it are refused, and no other process gets its port."""
_UNHEARD.bind(("127.0.0.1", 0))


def nobodys_url() -> str:
    """Return a URL at which no process listens."""
    return f"http://127.0.0.1:{_UNHEARD.getsockname()[1]}"
