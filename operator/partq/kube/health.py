"""Probes and metrics over HTTP."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from partq.errors import PartqError, SettingsError, UnsupportedEncodingError
from partq.metrics import CONTENT_TYPE
from partq.server.guard import Guard
from partq.server.limits import ServerLimits
from partq.server.memory import RequestMemory
from partq.server.runner import GuardedRunner

STALE_S = 120.0
"""After how long without a pass a loop counts as stuck."""

LIMITS = ServerLimits(
    max_connections=256, max_connections_per_token=256, max_connections_per_address=64,
    headers_s=5.0, body_s=5.0, answer_s=10.0, idle_s=75.0,
)  # fmt: skip
"""Probes and scrapes are few, and come without a token."""
REQUEST_MEMORY_BYTES = 128 * 1024 * 1024


@dataclass(slots=True)
class ProcessHealth:
    """When each loop of the process has last run, and when the API server has last answered."""

    clock: Callable[[], float]
    turned_at: dict[str, float] = field(default_factory=dict)
    listed_at: float | None = None

    def turn(self, loop: str) -> None:
        """Note a pass of a loop, with or without success."""
        self.turned_at[loop] = self.clock()

    def listed(self) -> None:
        """Note that everything was listed."""
        self.listed_at = self.clock()

    def stuck(self) -> list[str]:
        """Return the loops that are stuck: a restart may help, unlike with a lost API."""
        now = self.clock()
        return sorted(name for name, at in self.turned_at.items() if now - at > STALE_S)

    def is_ready(self) -> bool:
        """Whether what is known of the cluster is complete and fresh."""
        return self.listed_at is not None and self.clock() - self.listed_at < STALE_S


class HealthServer:
    """Serves `/healthz`, `/readyz` and `/metrics` until closed; the last one wants the `token`."""

    def __init__(
        self, health: ProcessHealth, metrics: Callable[[], bytes], *, token: str | None = None
    ) -> None:
        self._health = health
        self._metrics = metrics
        self._token = token
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._show_metrics)
        self._app = app
        self._runner: GuardedRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port.

        Raises:
            SettingsError: the address cannot be used.
        """
        guard = Guard(refuse=_refused, limits=LIMITS, memory=RequestMemory(REQUEST_MEMORY_BYTES))
        runner = self._runner = GuardedRunner(self._app, guard, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise SettingsError(
                f"listen address {host}:{port}: {error.strerror}; choose another "
                "PARTQ_LISTEN_HOST or PARTQ_LISTEN_PORT"
            ) from error
        return int(runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        stuck = self._health.stuck()
        text = "ok" if not stuck else f"stuck: {', '.join(stuck)}"
        return web.Response(text=text + "\n", status=500 if stuck else 200)

    async def _readyz(self, _: web.Request) -> web.Response:
        is_ready = self._health.is_ready()
        text = "ready" if is_ready else "not everything is listed"
        return web.Response(text=text + "\n", status=200 if is_ready else 503)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        # Two headers are refused: a proxy may have checked the other one.
        headers = request.headers.getall("Authorization", [])
        given = ", ".join(headers).encode(errors="surrogateescape")
        if self._token is not None and not hmac.compare_digest(
            given, b"Bearer " + self._token.encode()
        ):
            text = "metrics: send the header 'Authorization: Bearer TOKEN' (PARTQ_METRICS_TOKEN)\n"
            return web.Response(text=text, status=401, headers={"WWW-Authenticate": "Bearer"})
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})


def _refused(error: PartqError) -> web.Response:
    status = 415 if isinstance(error, UnsupportedEncodingError) else 400
    return web.Response(text=error.message + "\n", status=status)
