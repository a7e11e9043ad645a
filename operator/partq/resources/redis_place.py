"""Where a queue is stored, as its resource says it."""

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from partq.core import redis_url
from partq.resources.base import Model, ObjectName


class SecretKey(Model):
    """One entry of a Secret in the queue's namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = "url"
    """Name of the entry."""


class Redis(Model):
    """Where a queue is stored: exactly one of `url` and `secretRef`."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["url"]}, {"required": ["secretRef"]}]}
    )

    url: (
        Annotated[
            str,
            Field(
                max_length=1024,
                pattern=r"^rediss?://[^/?#\s]+",
                json_schema_extra={"pattern": redis_url.PLAIN_PATTERN},
            ),
        ]
        | None
    ) = None
    """URL of a Redis or Valkey, such as `redis://redis.shop.svc:6379/0`, or of nodes of a Redis
    Cluster, such as `redis://a.shop.svc:6379,b.shop.svc:6379`. It has no user and no password: a
    URL with these belongs in a Secret. After a `?` it may have `db`, `ssl_cert_reqs` and
    `ssl_check_hostname`."""
    secret_ref: SecretKey | None = None
    """The entry of a Secret that holds the URL."""

    @model_validator(mode="after")
    def _has_one(self) -> "Redis":
        if (self.url is None) == (self.secret_ref is None):
            raise ValueError("url: got both or neither of url and secretRef, expected one")
        if self.url is not None and "@" in self.url:
            raise ValueError(
                "url: got one with a user or a password, which everybody who reads the resource "
                "sees, expected one without; put it into a Secret, named in spec.redis.secretRef"
            )
        if self.url is not None:
            try:
                redis_url.check(self.url)
            except ValueError as error:
                raise ValueError(
                    f"url: invalid (not shown, it may hold a password); expected {error}"
                ) from None
        return self
