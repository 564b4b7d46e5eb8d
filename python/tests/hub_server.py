"""A Hugging Face hub on 127.0.0.1: its listings, and files that lie on another server behind it.

Written from the hub's public interface (`/api/datasets/{name}/tree/{revision}/{path}` in pages that a `Link` header
joins, `/datasets/{name}/resolve/{revision}/{path}` that leads on to a signed address), with the standard library only.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from store_servers import QuietHandler, QuietServer, serving

TOKEN = "hf_hush_hush_hush"

# Entries on one page of a listing.
PAGE = 3


class Hub:
    """Files of repositories by `datasets/user/name`, revision and path.

    Attributes:
        url: Of the hub.
        seen: Server (`hub` or `files`), path and headers (in lower case) of each request.
    """

    url = ""
    files_url = ""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.private: set[str] = set()
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.lock = threading.Lock()

    def upload(self, repository: str, folder: Path, revision: str = "main") -> None:
        files = self.repositories.setdefault(repository, {}).setdefault(revision, {})
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                files[path.relative_to(folder).as_posix()] = path.read_bytes()


def _answer(handler: QuietHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Runs a hub and the server of its files."""
    hub = Hub()

    class Files(QuietHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            with hub.lock:
                hub.seen.append(
                    ("files", self.path, {name.lower(): text for name, text in self.headers.items()})
                )
            parts = urlsplit(self.path)
            repository, revision, path = (unquote(part) for part in parts.path[1:].split("|"))
            if parts.query != "X-Amz-Signature=hush-signature" or self.headers.get("Authorization"):
                return _answer(self, 403)
            data = hub.repositories[repository][revision][path]
            tag = f'"{hashlib.sha256(data).hexdigest()}"'
            wanted = self.headers.get("Range")
            if not wanted:
                return _answer(self, 200, data, ETag=tag, Accept_Ranges="bytes")
            first, last = wanted.removeprefix("bytes=").split("-")
            start, end = int(first), min(int(last) + 1, len(data))
            if start >= len(data):
                return _answer(self, 416)
            content = f"bytes {start}-{end - 1}/{len(data)}"
            return _answer(self, 206, data[start:end], ETag=tag, Content_Range=content)

    class Front(QuietHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            with hub.lock:
                hub.seen.append(
                    ("hub", self.path, {name.lower(): text for name, text in self.headers.items()})
                )
            parts = urlsplit(self.path)
            words = parts.path.strip("/").split("/")
            listing = words[0] == "api"
            kinds = ("datasets", "spaces", "models") if listing else ("datasets", "spaces")
            words = words[1:] if listing else words
            kind = words.pop(0) if words[0] in kinds else "models"
            repository = "/".join([kind, *words[:2]])
            action, revision, path = words[2], unquote(words[3]), unquote("/".join(words[4:]))
            if repository in self.private_ones() and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return _answer(self, 401)
            files = hub.repositories.get(repository, {}).get(revision)
            if files is None:
                return _answer(self, 404)
            if listing and action == "tree":
                return self.tree(files, path, int(parse_qs(parts.query).get("cursor", ["0"])[0]), parts.path)
            if path not in files:
                return _answer(self, 404)
            place = "|".join(quote(part, safe="") for part in (repository, revision, path))
            return _answer(self, 302, Location=f"{hub.files_url}/{place}?X-Amz-Signature=hush-signature")

        def private_ones(self) -> set[str]:
            return hub.private

        def tree(self, files: dict[str, bytes], path: str, cursor: int, url: str) -> None:
            start = f"{path}/" if path else ""
            below = [name for name in files if name.startswith(start)]
            if not below:
                return _answer(self, 404)
            folders = sorted(
                {name[len(start) :].split("/")[0] for name in below if "/" in name[len(start) :]}
            )
            entries: list[dict[str, object]] = [
                {"type": "directory", "path": start + name} for name in folders
            ]
            entries += [
                {
                    "type": "file",
                    "path": name,
                    "size": len(files[name]),
                    "oid": hashlib.sha1(files[name]).hexdigest(),
                }
                for name in below
                if "/" not in name[len(start) :]
            ]
            page, more = entries[cursor : cursor + PAGE], cursor + PAGE < len(entries)
            link = {"Link": f'<{hub.url}{url}?cursor={cursor + PAGE}>; rel="next"'} if more else {}
            return _answer(self, 200, json.dumps(page).encode(), **link)

    with (
        serving(QuietServer(("127.0.0.1", 0), Files)) as files_url,
        serving(QuietServer(("127.0.0.1", 0), Front)) as url,
    ):
        # Another host for clients: what is meant for the hub must not go there.
        hub.files_url, hub.url = files_url.replace("127.0.0.1", "localhost"), url
        yield hub
