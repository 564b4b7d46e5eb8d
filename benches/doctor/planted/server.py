"""A file server that sends so many bytes a second to all clients: `server.py FOLDER RATE`. Says its address.

`--late SECONDS` before each answer, whatever its size; `--most N` requests a second, the others are refused (503).
"""

from __future__ import annotations

import argparse
import http.server
import re
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("root", type=Path)
parser.add_argument("rate", type=float)
parser.add_argument("--late", type=float, default=0.0)
parser.add_argument("--most", type=float, default=0.0)
ARGS = parser.parse_args()
CHUNK = 32 * 1024


class Bucket:
    """When the line is free again."""

    def __init__(self) -> None:
        self.lock, self.free = threading.Lock(), 0.0

    def take(self, size: int) -> None:
        with self.lock:
            self.free = max(self.free, time.monotonic()) + size / ARGS.rate
            until = self.free
        time.sleep(max(0.0, until - time.monotonic()))


BUCKET = Bucket()


class Turns:
    """Who is answered: so many a second, of which a tenth of a second's may come at once."""

    def __init__(self) -> None:
        self.lock, self.left, self.seen = threading.Lock(), 1.0, time.monotonic()

    def take(self) -> bool:
        with self.lock:
            now = time.monotonic()
            self.left = min(max(1.0, ARGS.most / 10), self.left + (now - self.seen) * ARGS.most)
            self.seen = now
            answered = self.left >= 1.0
            self.left -= answered
        return answered


TURNS = Turns()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = ARGS.root / Path(self.path).name
        if not path.is_file():
            return self.send_error(404)
        if ARGS.most and not TURNS.take():
            return self.send_error(503)
        time.sleep(ARGS.late)
        size, asked = path.stat().st_size, re.match(r"bytes=(\d+)-(\d+)$", self.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2]), size - 1)) if asked else (0, size - 1)
        with path.open("rb") as file:
            file.seek(first)
            data = file.read(last + 1 - first)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return None
        for at in range(0, len(data), CHUNK):
            part = data[at : at + CHUNK]
            BUCKET.take(len(part))
            try:
                self.wfile.write(part)
            except ConnectionError:
                self.close_connection = True  # the script ended
                return None
        return None

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """A client that ends in the middle is no error here."""


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
