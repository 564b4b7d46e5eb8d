"""Servers on 127.0.0.1 for tests of stores: S3 (moto's), files over HTTP with ranges, and a proxy that does harm."""

from __future__ import annotations

import hashlib
import http.client
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

_MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


class S3:
    """moto's server, in a process of its own. It takes any credentials, and none."""

    def __init__(self, url: str) -> None:
        self.url = url

    def put(self, key: str, data: bytes) -> None:
        # Public, so that what is not signed is answered, too.
        kind = {"Content-Type": "application/octet-stream", "x-amz-acl": "public-read"}
        request = urllib.request.Request(f"{self.url}/{quote(key)}", data=data, headers=kind, method="PUT")
        with urllib.request.urlopen(request) as answer:
            answer.read()

    def bucket(self, name: str) -> str:
        self.put(name, b"")
        return name

    def upload(self, bucket: str, folder: Path, prefix: str = "") -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{bucket}/{prefix}{path.relative_to(folder).as_posix()}", path.read_bytes())


@contextmanager
def s3_server() -> Iterator[S3]:
    process = subprocess.Popen(
        [sys.executable, "-c", _MOTO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        host, port = process.stdout.readline().split()
        yield S3(f"http://{host}:{port}")
    finally:
        # Workers that were forked meanwhile hold its standard input, too, so that closing it would not end it.
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        """Connections end as tests want them to end."""


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        # Answers are written in two pieces, and must not wait for each other.
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def web_server(root: Path, *, ranges: bool = True, password: str | None = None) -> Iterator[str]:
    """Files of `root` over HTTP, in ranges, with entity tags. A `password` must come with each request."""

    class Handler(QuietHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            given = urlsplit(self.path)
            allowed = password is None or password in (self.headers.get("Authorization") or "") + given.query
            path = root / unquote(given.path).lstrip("/")
            if not allowed or not path.is_file():
                self.send_response(403 if not allowed else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = path.read_bytes()
            size, status = len(data), 200
            tag = f'"{hashlib.md5(data).hexdigest()}"'
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
            headers = {"ETag": tag, "Accept-Ranges": "bytes"}
            if self.headers.get("If-Match") not in (None, tag):
                status, data = 412, b""
            elif ranges and asked:
                start, end = int(asked[1]), min(int(asked[2]) + 1, size)
                status, data = (206, data[start:end]) if start < size else (416, b"")
                headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}" if data else f"bytes */{size}"
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

    with serving(QuietServer(("127.0.0.1", 0), Handler)) as url:
        yield url


Decide = Callable[[str, str, int], str | None]


class Proxy:
    """What a proxy saw, and what it does.

    Attributes:
        decide: Of method, path and how often that path was asked for before: the name of a fault, or None.
        seen: Headers of each request, with its path.
    """

    url = ""

    def __init__(self) -> None:
        self.decide: Decide = lambda method, path, before: None
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.faults = 0
        self._counts: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        """What was asked for before counts no more."""
        with self._lock:
            self._counts.clear()
            self.seen.clear()
            self.faults = 0

    def fault(self, method: str, path: str, headers: dict[str, str]) -> str | None:
        with self._lock:
            self.seen.append((path, headers))
            before = self._counts.get((method, path), 0)
            self._counts[method, path] = before + 1
            fault = self.decide(method, path, before)
            self.faults += fault is not None
            return fault


@contextmanager
def fault_proxy(upstream: str) -> Iterator[Proxy]:
    """A proxy in front of `upstream`."""
    proxy = Proxy()
    target = urlsplit(upstream)

    class Handler(QuietHandler):
        def _forward(self) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
            size = int(self.headers.get("Content-Length") or 0)
            headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
            connection.request(self.command, self.path, self.rfile.read(size), headers)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            gone = ("connection", "transfer-encoding", "date", "server")
            return answer.status, [(k, v) for k, v in answer.getheaders() if k.lower() not in gone], body

        def _send(
            self, status: int, headers: list[tuple[str, str]], body: bytes, length: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in headers:
                if name.lower() != "content-length" or self.command == "HEAD":
                    self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)
            self.wfile.flush()

        def _end(self, *, reset: bool) -> None:
            self.close_connection = True
            if reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

        def do_GET(self) -> None:
            fault = proxy.fault(self.command, urlsplit(self.path).path, dict(self.headers))
            if fault == "throttle":
                self._send(503, [("Retry-After", "0.05")], b"")
                return
            if fault == "slow down":
                self._send(503, [], b"<Error><Code>SlowDown</Code><Message>Please reduce</Message></Error>")
                return
            if fault == "too many":
                self._send(429, [], b"")
                return
            if fault == "outage":
                self._send(500, [], b"<Error><Code>InternalError</Code></Error>")
                return
            if fault == "reset":
                self._end(reset=True)
                return
            if fault == "delay":
                time.sleep(0.2)
            status, headers, body = self._forward()
            good = fault is not None and self.command == "GET" and status in (200, 206) and len(body) > 1
            if good and fault in ("truncate", "reset midway"):
                self._send(status, headers, body[: len(body) // 2], len(body))
                self._end(reset=fault == "reset midway")
            elif good and fault == "drip":
                self._send(status, headers, b"", len(body))
                for at in range(min(len(body), 100)):
                    self.wfile.write(body[at : at + 1])
                    time.sleep(0.05)
                self._end(reset=False)
            elif good and fault == "wrong length":
                self._send(status, headers, body[:-1])
            elif good and fault == "wrong range":
                other = [(k, v) for k, v in headers if k.lower() != "content-range"]
                self._send(206, [*other, ("Content-Range", f"bytes 7-{6 + len(body)}/{10**9}")], body)
            elif good and fault == "changed":
                other = [(k, v) for k, v in headers if k.lower() != "etag"]
                self._send(status, [*other, ("ETag", '"0123456789abcdef0123456789abcdef"')], body[::-1])
            else:
                self._send(status, headers, body)

        do_HEAD = do_PUT = do_GET

    with serving(QuietServer(("127.0.0.1", 0), Handler)) as url:
        proxy.url = url
        yield proxy
