"""Messages made up from a few numbers, the same every time: a producer can go on where it died."""

from collections.abc import Iterator

from partq.cli.workload.events import Event


def key_prefix(producer: str) -> str:
    """Return what the keys of a producer's events begin with; no other producer's do."""
    return f"{producer}/"


def generate(producer: str, *, messages: int, keys: int, size_bytes: int) -> Iterator[Event]:
    """Yield `messages` events over `keys` keys in turn, numbered from 1 per key.

    Equal arguments give equal events. A value names its event at its begin; the rest is filler
    that does not compress to nothing.
    """
    prefix = key_prefix(producer)
    filler = _filler(size_bytes)
    for index in range(messages):
        key, number = f"{prefix}{index % keys}", index // keys + 1
        name = f"{key}#{number}:".encode()
        yield Event(key, number, (name + filler)[:size_bytes])


def _filler(size_bytes: int) -> bytes:
    # A multiplicative generator: no two neighbours alike, and no source of randomness to seed.
    state, filler = 1, bytearray()
    while len(filler) < size_bytes:
        state = state * 48_271 % 2_147_483_647
        filler += state.to_bytes(4, "little")
    return bytes(filler)
