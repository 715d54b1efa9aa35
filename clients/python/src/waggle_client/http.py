"""Requests to the administration API: sent, repeated where that is safe, and refused by name."""

import http.client
import json
import os
import random
import socket
import ssl
import threading
import time
from typing import Any, NamedTuple, Optional
from urllib.parse import urlsplit

#: Bytes of an answer: more than a gateway sends.
MAX_BYTES = 256 << 20
#: The statuses of a gateway that is busy or starting, or whose database is away.
BUSY = (429, 503)
#: The waits before the second and later attempts, where the gateway names none: doubled from the first to the last.
FIRST_WAIT, LAST_WAIT = 0.25, 8.0


class WaggleError(Exception):
    """A refusal of the gateway, or a gateway that cannot be reached."""

    def __init__(self, code: str, detail: str, status: Optional[int] = None, request_id: Optional[str] = None):
        super().__init__(f"{detail} ({code})")
        #: The stable name, such as ``revision_mismatch``; ``unreachable`` if there is no answer.
        self.code = code
        #: What was wrong, for people.
        self.detail = detail
        #: The status of the answer, if there is one.
        self.status = status
        #: By which the operator finds the request in logs.
        self.request_id = request_id


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Transport:
    """A connection to a gateway, which stays open between requests. One request at a time."""

    def __init__(self, url: str, key: str, timeout: float, retry_seconds: float, cafile: Optional[str]):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"expected a URL such as https://mcp.example.com, found {url!r}")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("expected a key of the gateway")
        self._base = parts.path.rstrip("/") + "/admin/v1"
        self._headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        self._retry_seconds = retry_seconds
        if parts.scheme == "http":
            self._connection: http.client.HTTPConnection = http.client.HTTPConnection(
                parts.hostname, parts.port, timeout=timeout
            )
        else:
            context = ssl.create_default_context(cafile=cafile)
            self._connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout, context=context
            )
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def send(
        self, method: str, path: str, body: Any = None, content_type: Optional[str] = None, condition: Optional[dict[str, str]] = None
    ) -> Answer:
        """Sends a request, and again while the gateway is busy, for ``retry_seconds`` in all.

        A request whose answer was lost is sent again too, unless it has a condition: the gateway may have carried it out,
        and would then refuse the second.
        """
        data = json.dumps(body).encode() if body is not None and content_type is None else body
        headers = {**self._headers, **(condition or {})}
        if data is not None:
            headers["Content-Type"] = content_type or "application/json"
        deadline, attempt = time.monotonic() + self._retry_seconds, 0
        while True:
            try:
                with self._lock:
                    status, answered, content = self._exchange(method, path, data, headers, fresh=bool(condition))
            except (OSError, http.client.HTTPException) as error:
                wait = self._wait(attempt, deadline, None)
                # Nothing was sent where no connection was made.
                refused = isinstance(error, (ConnectionRefusedError, socket.gaierror))
                if wait is None or isinstance(error, ssl.SSLError) or (condition and not refused):
                    raise WaggleError("unreachable", f"{method} {path}: {error or type(error).__name__}") from error
            else:
                wait = self._wait(attempt, deadline, answered) if status in BUSY else None
                # A database that was lost at the end of a write may have kept it.
                if wait is None or (condition and status != 429):
                    return self._checked(Answer(status, answered, content))
            attempt += 1
            time.sleep(wait)

    def _exchange(
        self, method: str, path: str, data: Optional[bytes], headers: dict[str, str], fresh: bool
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        # An idle connection may have been closed by the other side, which only sending to it shows.
        if fresh:
            self._connection.close()
        try:
            self._connection.request(method, self._base + path, body=data, headers=headers)
            with self._connection.getresponse() as response:
                content = response.read(MAX_BYTES + 1)
                if len(content) > MAX_BYTES:
                    raise http.client.HTTPException(f"an answer of more than {MAX_BYTES} bytes")
                return response.status, response.headers, content
        except BaseException:
            self._connection.close()
            raise

    @staticmethod
    def _wait(attempt: int, deadline: float, headers: Optional[http.client.HTTPMessage]) -> Optional[float]:
        """Seconds before the next attempt; none if it would be too late."""
        named = headers.get("Retry-After", "") if headers is not None else ""
        wait: float = min(FIRST_WAIT * 2**attempt, LAST_WAIT) * random.uniform(0.5, 1)
        if named.isdigit():
            wait = max(float(named), wait)
        return wait if time.monotonic() + wait < deadline else None

    @staticmethod
    def _checked(answer: Answer) -> Answer:
        if 200 <= answer.status < 300:
            return answer
        try:
            problem = json.loads(answer.body)
            code, detail = problem["code"], problem["detail"]
        except (ValueError, KeyError, TypeError):
            code, detail = "unexpected_answer", f"the gateway answered {answer.status}"
        raise WaggleError(code, detail, answer.status, answer.headers.get("X-Request-Id"))


def from_environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ValueError(f"the environment variable {name} is not set")
    return value
