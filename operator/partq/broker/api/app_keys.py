"""Typed keys of the objects that the aiohttp application carries."""

import asyncio

from aiohttp import web

from partq.broker.api.endpoints import CallTable
from partq.broker.api.log_waits import LogWaits
from partq.broker.api.shared_status import SharedStatus
from partq.broker.api.tokens import Tokens
from partq.broker.broker import Broker
from partq.broker.operations.pull.pulls import Pulls
from partq.broker.operations.rates import RateSampler
from partq.broker.peers.peer_client import PeerClient
from partq.server.guard import Guard
from partq.server.memory import RequestMemory

BROKER = web.AppKey("broker", Broker)
CALLS = web.AppKey("calls", CallTable)
TOKENS = web.AppKey("tokens", Tokens)
PULLS = web.AppKey("pulls", Pulls)
GUARD = web.AppKey("guard", Guard)
"""The bounds of the server, and what is held of them."""
READS = web.AppKey("reads", asyncio.Semaphore)
"""Bounds how many answers of stored batches are read side by side."""
PLANS = web.AppKey("plans", asyncio.Lock)
"""Held while a plan is computed for somebody who asks what other members would have."""
LOG_WAITS = web.AppKey("log_waits", LogWaits)
"""Calls that wait at the end of a log."""
MEMORY = web.AppKey("memory", RequestMemory)
"""Memory budget of the bodies and answers of all calls."""
PEERS = web.AppKey("peers", PeerClient)
"""For calls to other brokers."""
STATUS = web.AppKey("status", SharedStatus)
"""The status as callers share it that ask often."""
RATES = web.AppKey("rates", RateSampler)
"""The last ten minutes of this broker."""
