"""Sees at the beginning of a query that there are brokers: a wrong address is told soon."""

import asyncio

from partq.client.transport.liveness import RetryBackoff
from partq.client.transport.session import Session, UnreachedError, UntrustedError
from partq.errors import UnavailableError
from partq.spark.connection import ClientOptions


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
    clock = asyncio.get_running_loop().time
    end = clock() + connection.answer_s
    backoff = RetryBackoff()
    session = Session(
        connection.url,
        queue=connection.queue,
        token=connection.token(),
        namespace=connection.namespace,
        ca_file=connection.ca_file,
    )
    async with session:
        while True:
            try:
                await session.view(session.seeds)
            except UntrustedError as error:
                raise UnavailableError(error.message) from error
            except UnreachedError as error:
                wait_s = backoff.next_s()
                if clock() + wait_s > end:
                    raise UnavailableError(error.message) from error
                await asyncio.sleep(wait_s)
            except UnavailableError:
                return
            else:
                return
