"""Watching the API server with nothing but the standard library: one kind of object per thread."""

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Objects: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""Objects of one kind by (namespace, name)."""

_TIMEOUT_S = 30
_WATCH_S = 300  # the server ends a watch after this long; the socket's time-out is longer
_RETRY_S = 0.5


class Api:
    """The API server, reached with a client certificate."""

    def __init__(self, address: str, ca: str, certificate: str, key: str) -> None:
        self._address = address
        self._tls = ssl.create_default_context(cafile=ca)
        self._tls.load_cert_chain(certificate, key)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the object of the answer.

        Raises:
            OSError: no answer, or one that is an error (`ApiError`).
        """
        connection = self._connect(_TIMEOUT_S)
        try:
            return _answer(_ask(connection, method, path, body))
        finally:
            connection.close()

    def watch(self, path: str, changed: Callable[[Objects], None], stop: threading.Event) -> None:
        """Call `changed` with all objects at `path`, now and after each change, until `stop`.

        An interruption is a reason to list again and nothing else.
        """
        while not stop.is_set():
            try:
                self._watch_once(path, changed)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                stop.wait(_RETRY_S)

    def _watch_once(self, path: str, changed: Callable[[Objects], None]) -> None:
        listed = self.send("GET", path)
        version = listed["metadata"]["resourceVersion"]
        objects = {_id(item): item for item in listed.get("items") or []}
        changed(dict(objects))
        connection = self._connect(_WATCH_S + _TIMEOUT_S)
        try:
            query = f"{path}?watch=1&timeoutSeconds={_WATCH_S}&resourceVersion={version}"
            response = _ask(connection, "GET", query, None)
            if response.status != http.client.OK:
                _answer(response)
            for line in response:
                event = json.loads(line)
                match event["type"]:
                    case "ADDED" | "MODIFIED":
                        objects[_id(event["object"])] = event["object"]
                    case "DELETED":
                        objects.pop(_id(event["object"]), None)
                    case _:  # the version is too old: list again
                        return
                changed(dict(objects))
        finally:
            connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, timeout=timeout_s, context=self._tls)


class ApiError(OSError):
    """The API server refused; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


def _ask(
    connection: http.client.HTTPSConnection,
    method: str,
    path: str,
    body: Mapping[str, Any] | None,
) -> http.client.HTTPResponse:
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json"})
    return connection.getresponse()


def _answer(response: http.client.HTTPResponse) -> dict[str, Any]:
    content = response.read()
    if response.status >= http.client.BAD_REQUEST:
        raise ApiError(response.status, content.decode(errors="replace")[:500])
    answer: dict[str, Any] = json.loads(content)
    return answer


def _id(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
