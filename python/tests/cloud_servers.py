"""Google Cloud Storage and Azure Blob Storage on 127.0.0.1, as much of them as stores use; TLS; a proxy.

Written from the services' own documents and with nothing but the standard library, as no package that pip installs
speaks both listings (Google's XML API, Azure's). Signatures are checked, lists come in pages, answers have the
services' tags, headers and errors. As a script (``python cloud_servers.py gcs``) it prints its address, and ends with
its standard input.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import re
import select
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from store_servers import QuietHandler, QuietServer, serving

ACCOUNT = "hushaccount"
ACCOUNT_KEY = base64.b64encode(b"hush hush hush hush hush hush!!!").decode()
SAS = "sv=2022-11-02&ss=b&srt=co&sp=rl&se=2099-01-01T00%3A00%3A00Z&sig=hush%2Bhush%3D"
BEARER = "hush-hush-bearer"

# Objects on one page of a list.
PAGE = 7

_CHANGED = "Wed, 01 Jan 2025 00:00:00 GMT"


class Cloud:
    """Objects of a server by bucket and key.

    Attributes:
        url: Of the server; what the services call an endpoint.
        seen: Method, path and headers of each request.
        busy: So many requests will be answered by a request to slow down.
    """

    url = ""

    def __init__(self, buckets: tuple[str, ...]) -> None:
        self.objects: dict[str, dict[str, bytes]] = {name: {} for name in buckets}
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.busy = 0
        self.lock = threading.Lock()

    def upload(self, bucket: str, folder: Path, prefix: str = "") -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.objects[bucket][prefix + path.relative_to(folder).as_posix()] = path.read_bytes()


class _Handler(QuietHandler):
    """What both services have in common."""

    cloud: Cloud
    given: str
    query: dict[str, str]

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        # Errors to HEAD have no body: clients would have to read the head alone.
        if self.command != "HEAD" or "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body) if self.command != "HEAD" else 0))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status: int, code: str, **headers: str) -> None:
        text = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{code}: no</Message></Error>'
        self.send(status, text.encode(), **headers)

    # Of the service.
    def place(self) -> tuple[str, str]:
        """Bucket and key."""
        raise NotImplementedError

    def allowed(self) -> bool:
        raise NotImplementedError

    def tag(self, data: bytes) -> str:
        raise NotImplementedError

    def list(self, bucket: str) -> bytes:
        raise NotImplementedError

    codes: ClassVar[dict[str, tuple[int, str]]]

    def no(self, what: str, **headers: str) -> None:
        self.fail(*self.codes[what], **headers)

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        parts = urlsplit(self.path)
        self.given, self.query = parts.path, dict(parse_qsl(parts.query, keep_blank_values=True))
        with self.cloud.lock:
            self.cloud.seen.append((self.command, self.path, dict(self.headers)))
            busy, self.cloud.busy = self.cloud.busy > 0, max(0, self.cloud.busy - 1)
        if busy:
            self.no("busy")
            return
        if not self.allowed():
            self.no("denied")
            return
        bucket, key = self.place()
        objects = self.cloud.objects.get(bucket)
        if objects is None:
            self.no("bucket")
        elif self.command == "PUT":
            objects[key] = body
            self.send(201 if isinstance(self, _Azure) else 200, ETag=self.tag(body), Last_Modified=_CHANGED)
        elif not key:
            self.send(200, self.list(bucket), Content_Type="application/xml")
        elif key not in objects:
            self.no("key")
        else:
            self._object(objects[key])

    do_HEAD = do_PUT = do_GET

    def _object(self, data: bytes) -> None:
        tag = self.tag(data)
        if self.headers.get("If-Match") not in (None, "*", tag):
            self.no("changed")
            return
        headers = {"ETag": tag, "Last_Modified": _CHANGED, "Accept_Ranges": "bytes"}
        headers["Content_Type"] = "application/octet-stream"
        if self.command == "HEAD":
            self.send(200, **headers, Content_Length=str(len(data)))
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if not asked:
            self.send(200, data, **headers)
            return
        start, end = int(asked[1]), min(int(asked[2]) + 1, len(data))
        if start >= len(data):
            self.no("range", Content_Range=f"bytes */{len(data)}")
            return
        self.send(206, data[start:end], **headers, Content_Range=f"bytes {start}-{end - 1}/{len(data)}")

    def page(self, bucket: str, token: str | None) -> tuple[list[str], list[str], str | None]:
        """Keys and common prefixes of one page of what is asked for, and where the next one begins."""
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        names: dict[str, bool] = {}
        for key in sorted(self.cloud.objects[bucket]):
            if not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            folder = delimiter and delimiter in rest
            names[prefix + rest.split(delimiter)[0] + delimiter if folder else key] = bool(folder)
        after = [name for name in names if token is None or name > token]
        taken = after[:PAGE]
        keys = [name for name in taken if not names[name]]
        return keys, [name for name in taken if names[name]], taken[-1] if len(after) > PAGE else None


class _Gcs(_Handler):
    """The XML API: https://cloud.google.com/storage/docs/xml-api/overview."""

    codes: ClassVar[dict[str, tuple[int, str]]] = {
        "busy": (429, "SlowDown"),
        "denied": (401, "AuthenticationRequired"),
        "bucket": (404, "NoSuchBucket"),
        "key": (404, "NoSuchKey"),
        "changed": (412, "PreconditionFailed"),
        "range": (416, "InvalidRange"),
    }

    def place(self) -> tuple[str, str]:
        bucket, _, key = self.given.lstrip("/").partition("/")
        return unquote(bucket), unquote(key)

    def allowed(self) -> bool:
        given = self.headers.get("Authorization")
        return given == f"Bearer {BEARER}" or (given is None and self.place()[0].startswith("public"))

    def tag(self, data: bytes) -> str:
        return f'"{hashlib.md5(data).hexdigest()}"'

    def list(self, bucket: str) -> bytes:
        assert self.query.get("list-type") == "2"
        keys, prefixes, more = self.page(bucket, self.query.get("continuation-token"))
        objects = self.cloud.objects[bucket]
        text = [f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><Name>{bucket}</Name>"]
        for key in keys:
            tag = escape(self.tag(objects[key]), {'"': "&quot;"})
            text.append(
                f"<Contents><Key>{escape(key)}</Key><Generation>1</Generation><MetaGeneration>1</MetaGeneration>"
                f"<LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>{tag}</ETag>"
                f"<Size>{len(objects[key])}</Size></Contents>"
            )
        text += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in prefixes]
        text.append(f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>")
        if more:
            text.append(f"<NextContinuationToken>{escape(more)}</NextContinuationToken>")
        return "".join([*text, "</ListBucketResult>"]).encode()


class _Azure(_Handler):
    """The Blob service: https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api.

    The account is the first part of the path, as with Azurite.
    """

    codes: ClassVar[dict[str, tuple[int, str]]] = {
        "busy": (503, "ServerBusy"),
        "denied": (403, "AuthenticationFailed"),
        "bucket": (404, "ContainerNotFound"),
        "key": (404, "BlobNotFound"),
        "changed": (412, "ConditionNotMet"),
        "range": (416, "InvalidRange"),
    }

    def fail(self, status: int, code: str, **headers: str) -> None:
        super().fail(status, code, **headers, x_ms_error_code=code)

    def place(self) -> tuple[str, str]:
        account, _, rest = self.given.lstrip("/").partition("/")
        if account != ACCOUNT:
            return "", ""
        bucket, _, key = rest.partition("/")
        return unquote(bucket), unquote(key)

    def allowed(self) -> bool:
        given = self.headers.get("Authorization")
        if given is None:
            sas = dict(parse_qsl(SAS))
            return {name: self.query.get(name) for name in sas} == sas or self.place()[0].startswith("public")
        return given in (f"Bearer {BEARER}", f"SharedKey {ACCOUNT}:{self._signature()}")

    def _signature(self) -> str:
        """https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key"""
        names = (
            "Content-Encoding",
            "Content-Language",
            "Content-Length",
            "Content-MD5",
            "Content-Type",
            "Date",
            "If-Modified-Since",
            "If-Match",
            "If-None-Match",
            "If-Unmodified-Since",
            "Range",
        )
        values = [self.headers.get(name) or "" for name in names]
        if values[2] == "0":
            values[2] = ""
        extra = sorted(
            (k.lower(), v.strip()) for k, v in self.headers.items() if k.lower().startswith("x-ms-")
        )
        resource = f"/{ACCOUNT}{self.given}"
        for name in sorted(self.query):
            resource += f"\n{name.lower()}:{self.query[name]}"
        lines = [self.command, *values, *(f"{name}:{value}" for name, value in extra), resource]
        key = base64.b64decode(ACCOUNT_KEY)
        return base64.b64encode(hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()).decode()

    def tag(self, data: bytes) -> str:
        # Not of the content, and with an x in it.
        return f'"0x8D{hashlib.md5(data).hexdigest()[:12].upper()}"'

    def list(self, bucket: str) -> bytes:
        assert (self.query.get("restype"), self.query.get("comp")) == ("container", "list")
        keys, prefixes, more = self.page(bucket, self.query.get("marker"))
        objects = self.cloud.objects[bucket]
        text = ['<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>']
        for key in keys:
            # Here tags have no quotes.
            tag = self.tag(objects[key]).strip('"')
            text.append(
                f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{_CHANGED}</Last-Modified>"
                f"<Etag>{tag}</Etag><Content-Length>{len(objects[key])}</Content-Length>"
                "<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType>"
                "</Properties></Blob>"
            )
        text += [f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" for name in prefixes]
        text.append(f"</Blobs><NextMarker>{escape(more or '')}</NextMarker></EnumerationResults>")
        return "".join(text).encode()

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        super().send(status, body, **headers, x_ms_version="2022-11-02")


@contextmanager
def cloud(kind: str, *buckets: str, tls: tuple[Path, Path] | None = None) -> Iterator[Cloud]:
    """A server of `kind` ("gcs", "azure") with empty `buckets`, of which all may read those that begin with ``public``.

    `tls`: its certificate and key.
    """
    made = Cloud(buckets)
    base = {"gcs": _Gcs, "azure": _Azure}[kind]
    server = QuietServer(("127.0.0.1", 0), type(kind, (base,), {"cloud": made}))
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with serving(server) as url:
        url = url.replace("http", "http" if tls is None else "https", 1)
        made.url = url if kind == "gcs" else f"{url}/{ACCOUNT}"
        yield made


def certificate(folder: Path) -> tuple[Path, Path, Path] | None:
    """An authority of one's own, and the certificate and key of 127.0.0.1 and localhost; None without openssl."""
    if shutil.which("openssl") is None:
        return None

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = ("-x509", "-days", "3650", "-subj", "/CN=authority of a test", "-out", "ca.pem")
    openssl("req", *curve, "-keyout", "ca.key", *authority)
    openssl("req", *curve, "-keyout", "server.key", "-subj", "/CN=localhost", "-out", "server.csr")
    (folder / "server.ext").write_text(
        "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n"
    )
    signed = (
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "825",
        "-extfile",
        "server.ext",
    )
    openssl("x509", "-req", "-in", "server.csr", *signed, "-out", "server.pem")
    return folder / "ca.pem", folder / "server.pem", folder / "server.key"


@contextmanager
def forward_proxy(password: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """A proxy that tunnels (CONNECT) and fetches, and what it was asked for. `password`: of its user `hush`."""
    asked: list[str] = []

    class Handler(QuietHandler):
        def _may(self) -> bool:
            if password is None:
                return True
            wanted = "Basic " + base64.b64encode(f"hush:{password}".encode()).decode()
            if self.headers.get("Proxy-Authorization") == wanted:
                return True
            self.send_response(407)
            self.send_header("Proxy-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False

        def do_CONNECT(self) -> None:
            asked.append(f"CONNECT {self.path}")
            if not self._may():
                return
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=30) as there:
                self.send_response(200)
                self.end_headers()
                ends = {there: self.connection, self.connection: there}
                self.close_connection = True
                while True:
                    for end in select.select(list(ends), [], [], 30)[0]:
                        data = end.recv(1 << 16)
                        if not data:
                            return
                        ends[end].sendall(data)

        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path}")
            if not self._may():
                return
            parts = urlsplit(self.path)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
            headers = {k: v for k, v in self.headers.items() if not k.lower().startswith("proxy-")}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection.request(self.command, parts._replace(scheme="", netloc="").geturl(), body, headers)
            answer = connection.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("date", "server"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            connection.close()

        do_HEAD = do_GET

    with serving(QuietServer(("127.0.0.1", 0), Handler)) as url:
        yield url, asked


def main() -> None:
    kind: str = sys.argv[1]
    run: Callable[[], object] = sys.stdin.read
    with cloud(kind, *sys.argv[2:]) as made:
        print(made.url, flush=True)
        run()


if __name__ == "__main__":
    main()
