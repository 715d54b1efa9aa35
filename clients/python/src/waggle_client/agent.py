"""What one agent publishes."""

import json
import random
import time
from dataclasses import dataclass
from typing import Any, Callable, Generic, Iterator, Optional, TypeVar
from urllib.parse import quote

from .http import Answer, Transport, WaggleError, from_environment
from .types import Applied, Manifest, NewManifest, NewPrompt, NewResource, NewTemplate, Prompt, Resource, Template

Item = TypeVar("Item")
New = TypeVar("New")

#: How often a change is made again on what was written meanwhile.
MAX_CONFLICTS = 10
#: Exponential backoff with jitter after a conflict, in seconds: the wait is random, up to this times 2 to the number of conflicts.
CONFLICT_WAIT = 0.02
#: Items that a list requests at once: the most that a gateway answers.
PAGE = 500
#: Members that answers have and bodies do not.
ANSWERED = ("size",)


@dataclass(frozen=True)
class Written:
    """A definition that was written."""

    #: The revision that last changed it. A write of what is there already keeps it.
    revision: int
    #: Whether it is new.
    created: bool


@dataclass(frozen=True)
class Revised(Generic[Item]):
    """What was read, and the revision that last changed it."""

    value: Item
    revision: int


class Definitions(Generic[Item, New]):
    """The definitions of one kind: resources by URI, templates by URI template, prompts by name."""

    def __init__(self, transport: Transport, path: str, query: Optional[str]):
        self._transport, self._base, self._query = transport, path, query

    def _path(self, key: str, below: str = "") -> str:
        name = quote(key, safe="")
        return f"{self._base}{below}?{self._query}={name}" if self._query else f"{self._base}/{name}"

    def put(self, key: str, definition: New, *, if_revision: Optional[int] = None, create: bool = False) -> Written:
        """Writes a definition: what is there is replaced.

        With ``if_revision``, only if that is its revision; with ``create``, only if it does not exist. Otherwise
        :class:`WaggleError` with the code ``revision_mismatch``.
        """
        return written(self._transport.send("PUT", self._path(key), definition, condition=condition(if_revision, create)))

    def get(self, key: str) -> Optional[Revised[Item]]:
        """Reads a definition with its content; ``None`` if it does not exist."""
        try:
            answer = self._transport.send("GET", self._path(key))
        except WaggleError as error:
            if error.code == "not_found":
                return None
            raise
        return Revised(json.loads(answer.body), revision(answer))

    def list(self) -> Iterator[Item]:
        """All definitions without their content, page by page."""
        cursor = None
        while True:
            more = f"&cursor={quote(cursor, safe='')}" if cursor else ""
            page = json.loads(self._transport.send("GET", f"{self._base}?limit={PAGE}{more}").body)
            yield from page["items"]
            cursor = page.get("nextCursor")
            if not cursor:
                return

    def change(self, key: str, update: Callable[[Item], New]) -> Written:
        """Replaces a definition by what ``update`` makes of it, and again if it was changed in between."""
        for attempt in range(MAX_CONFLICTS):
            if attempt > 0:
                time.sleep(random.uniform(0, CONFLICT_WAIT * 2**attempt))
            found = self.get(key)
            if found is None:
                raise WaggleError("not_found", f"there is no {key}", 404)
            read: Any = found.value
            present: Any = {name: value for name, value in read.items() if name not in ANSWERED}
            try:
                return self.put(key, update(present), if_revision=found.revision)
            except WaggleError as error:
                if error.code != "revision_mismatch":
                    raise
        raise WaggleError("revision_mismatch", f"{key} was changed by others {MAX_CONFLICTS} times", 412)

    def delete(self, key: str, *, if_revision: Optional[int] = None) -> None:
        """Deletes a definition. One that does not exist is deleted already."""
        try:
            self._transport.send("DELETE", self._path(key), condition=condition(if_revision, False))
        except WaggleError as error:
            if error.code != "not_found":
                raise


class Resources(Definitions[Resource, NewResource]):
    """The resources of an agent, by URI."""

    def put_content(
        self, uri: str, content: bytes, mime_type: str, *, if_revision: Optional[int] = None
    ) -> Written:
        """Writes the content of a resource alone, as it is; a new resource is named after its URI."""
        path = self._path(uri, "/content")
        return written(self._transport.send("PUT", path, content, mime_type, condition(if_revision, False)))

    def content(self, uri: str) -> bytes:
        """The content of a resource, as it is."""
        return self._transport.send("GET", self._path(uri, "/content")).body

    def touch(self, uri: str) -> int:
        """Notifies the subscribers of a resource without new content; returns the revision."""
        return revision(self._transport.send("POST", self._path(uri, "/touch")))


class Agent:
    """An agent of a gateway, whose catalog is changed with a key that has the scope ``registry``.

    :param name: The id of the agent.
    :param url: The URL of the gateway; that of ``WAGGLE_URL`` by default.
    :param key: The key; that of ``WAGGLE_KEY`` by default.
    :param timeout: Seconds without a byte before a request is given up.
    :param retry_seconds: Seconds after which a request is no longer repeated.
    :param cafile: A PEM file with the certificates to trust, in place of those of the system.
    """

    def __init__(
        self,
        name: str,
        url: Optional[str] = None,
        key: Optional[str] = None,
        *,
        timeout: float = 60,
        retry_seconds: float = 60,
        cafile: Optional[str] = None,
    ):
        url, key = url or from_environment("WAGGLE_URL"), key or from_environment("WAGGLE_KEY")
        self._transport = Transport(url, key, timeout, retry_seconds, cafile)
        self._base = f"/agents/{quote(name, safe='')}"
        self.resources = Resources(self._transport, f"{self._base}/resources", "uri")
        self.templates: Definitions[Template, NewTemplate] = Definitions(
            self._transport, f"{self._base}/templates", "uriTemplate"
        )
        self.prompts: Definitions[Prompt, NewPrompt] = Definitions(self._transport, f"{self._base}/prompts", None)

    def manifest(self) -> Revised[Manifest]:
        """The whole catalog."""
        answer = self._transport.send("GET", f"{self._base}/manifest")
        return Revised(json.loads(answer.body), revision(answer))

    def apply(
        self, manifest: NewManifest, *, dry_run: bool = False, if_revision: Optional[int] = None
    ) -> Applied:
        """Makes the catalog equal to a manifest, in one revision; with ``dry_run``, says what that would change."""
        path = f"{self._base}/manifest" + ("?dryRun=true" if dry_run else "")
        answer = self._transport.send("PUT", path, manifest, condition=condition(if_revision, False))
        applied: Applied = json.loads(answer.body)
        return applied

    def close(self) -> None:
        """Closes the connection to the gateway."""
        self._transport.close()

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def condition(if_revision: Optional[int], create: bool) -> Optional[dict[str, str]]:
    if create:
        return {"If-None-Match": "*"}
    return None if if_revision is None else {"If-Match": f'"{if_revision}"'}


def written(answer: Answer) -> Written:
    return Written(revision(answer), answer.status == 201)


def revision(answer: Answer) -> int:
    # A compressed answer has a suffix after the revision.
    return int(answer.headers["ETag"].removeprefix("W/").strip('"').partition("-")[0])
