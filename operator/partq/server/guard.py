"""State that the connections of one server share: bounds, counts, memory of requests."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from partq.errors import PartqError
from partq.server.census import Census
from partq.server.limits import ServerLimits
from partq.server.memory import RequestMemory


@dataclass(slots=True, kw_only=True)
class Guard:
    """The bounds of a server, and what its callers hold of them."""

    refuse: Callable[[PartqError], web.Response]
    """Makes the answer of a call that is refused before the application sees it."""
    limits: ServerLimits
    memory: RequestMemory
    on_cut: Callable[[str], None] = field(default=lambda reason: None)
    """Called with the reason when a connection is cut or refused: `total`, `address`, `token`,
    `headers`, `body`, `answer`, `memory`."""
    census: Census = field(init=False)
    loop: asyncio.AbstractEventLoop = field(init=False)

    def __post_init__(self) -> None:
        self.census = Census(self.limits, lambda reason: self.on_cut(reason))
        self.loop = asyncio.get_running_loop()
