"""A file server that sends so many bytes a second to all clients: `server.py FOLDER RATE`. Says its address."""

from __future__ import annotations

import http.server
import sys
import threading
import time
from pathlib import Path

ROOT, RATE = Path(sys.argv[1]), float(sys.argv[2])
CHUNK = 32 * 1024


class Bucket:
    """When the line is free again."""

    def __init__(self) -> None:
        self.lock, self.free = threading.Lock(), 0.0

    def take(self, size: int) -> None:
        with self.lock:
            self.free = max(self.free, time.monotonic()) + size / RATE
            until = self.free
        time.sleep(max(0.0, until - time.monotonic()))


BUCKET = Bucket()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = ROOT / Path(self.path).name
        if not path.is_file():
            return self.send_error(404)
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        for at in range(0, len(data), CHUNK):
            part = data[at : at + CHUNK]
            BUCKET.take(len(part))
            try:
                self.wfile.write(part)
            except ConnectionError:
                self.close_connection = True  # the script ended
                return None
        return None

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
