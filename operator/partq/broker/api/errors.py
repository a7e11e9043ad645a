"""Errors as HTTP: one table from codes to statuses, one shape of body."""

import logging
import math
from collections.abc import Awaitable, Callable

from aiohttp import web

from partq import errors
from partq.errors import PartqError
from partq.wire.calls import body_codec
from partq.wire.calls.answers import Refusal, Struct
from partq.wire.calls.replies import error_detail

STATUS_BY_CODE: dict[str, int] = {
    "internal": 500,
    "bad_settings": 500,
    "bad_request": 400,
    "bad_json": 400,
    "bad_frame": 400,
    "bad_batch": 400,
    "wrong_partition": 400,
    "key_conflict": 400,
    "transaction_without_key": 400,
    "transaction_over_keys": 400,
    "undecodable": 400,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "unsupported_encoding": 415,
    "unauthorized": 401,
    "forbidden": 403,
    "not_listed": 403,
    "member_refused": 403,
    "not_found": 404,
    "unknown_queue": 404,
    "unknown_group": 404,
    "unknown_partition": 404,
    "conflict": 409,
    "fenced": 409,
    "states_full": 409,
    "kept_states": 409,
    "no_session": 409,
    "session_locked": 409,
    "session_lost": 409,
    "not_delivered": 409,
    "rewound": 409,
    "rolled_back": 409,
    "member_in_use": 409,
    "attempt_refused": 409,
    "partition_in_use": 409,
    "server_assigned": 409,
    "not_subscribable": 409,
    "source_count_differs": 409,
    "node_in_use": 409,
    "append_gap": 409,
    "stale_generation": 409,
    "superseded": 409,
    "resend_from": 409,
    "out_of_sequence": 409,
    "unknown_producer": 409,
    "number_reused": 409,
    "data_loss": 410,
    "upgrade_required": 426,
    "message_too_large": 413,
    "batch_too_large": 413,
    "not_owner": 421,
    "quota_exceeded": 429,
    "too_many_connections": 429,
    "store_full": 507,
    "unsupported": 501,
    "unavailable": 503,
    "not_stored": 503,
    "store_unavailable": 503,
    "broker_closing": 503,
    "overloaded": 503,
    "outcome_unknown": 504,
}

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def json_response(
    body: Struct, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Return JSON."""
    return web.Response(
        body=body_codec.encode(body),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def error_response(error: PartqError) -> web.Response:
    """Return an error with the status of its code."""
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    return json_response(
        Refusal(error_detail(error)), status=STATUS_BY_CODE[error.code], headers=headers
    )


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into its JSON; what nobody foresaw is logged and hidden."""
    try:
        return await handler(request)
    except PartqError as error:
        return error_response(error)
    except (ConnectionError, web.RequestPayloadError) as error:
        # Nobody reads the answer, and nobody else needs to know.
        _log.debug("%s %s: its body was broken off: %s", request.method, request.path, error)
        return error_response(errors.BadRequestError(f"the body was broken off: {error}"))
    except web.HTTPMethodNotAllowed as error:
        allowed = error.headers["Allow"]
        response = error_response(
            errors.MethodNotAllowedError(
                f"{request.method} {request.path}: not served with this method; use {allowed}"
            )
        )
        response.headers["Allow"] = allowed
        return response
    except web.HTTPException as error:
        kind = errors.NotFoundError if error.status == 404 else errors.BadRequestError
        response = error_response(
            kind(
                f"{request.method} {request.path}: {error.reason}; the calls are listed in "
                "docs/protocol.md"
            )
        )
        response.set_status(error.status)
        return response
    except Exception:  # noqa: BLE001  (the last resort of a server: logged, and hidden)
        _log.exception("%s %s failed", request.method, request.path)
        return error_response(errors.InternalError("the broker failed; its log says why"))
