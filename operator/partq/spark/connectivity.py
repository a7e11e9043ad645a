"""Sees at the beginning of a query that there are brokers: a wrong address is told soon."""

import asyncio
from dataclasses import replace

from partq.client.transport.retries import RetryWindow
from partq.client.transport.session import Session, UnreachedError, UntrustedError
from partq.errors import UnauthorizedError, UnavailableError
from partq.spark.connection import ClientOptions

FIRST_TIMEOUT_S = 10.0
"""How long a query waits for brokers when it begins: somewhat longer than a failover takes."""


def at_first(connection: ClientOptions) -> ClientOptions:
    """Return it for the first call: a wrong address is told soon, a failover waited for."""
    return replace(connection, timeout_s=min(connection.timeout_s, FIRST_TIMEOUT_S))


def find_brokers(connection: ClientOptions) -> None:
    """See that a broker answers, for at most `connection.answer_s`.

    One that answers, and cannot serve the queue just now, is left to what comes next, which waits
    for it: only an address that nobody is behind is not worth a long wait.

    Raises:
        UnavailableError: nobody answers, or with certificates that are not trusted.
        PartqError: a broker refuses the queue or the token.
    """
    asyncio.run(_find(connection))


async def _find(connection: ClientOptions) -> None:
    patience = RetryWindow(connection.answer_s)
    async with Session(connection.options()) as session:
        while True:
            try:
                await session.layout(session.seeds)
            except UnauthorizedError as error:
                if connection.given_token is None and connection.token_file is None:
                    raise UnauthorizedError(
                        f"queue {connection.queue!r} needs a token, and none is given; set the "
                        "option token or tokenFile"
                    ) from error
                raise
            except UntrustedError as error:
                raise UnavailableError(error.message) from error
            except UnreachedError as error:
                await patience.wait(UnavailableError(error.message))
            except UnavailableError:
                return
            else:
                return
