"""How commands write lengths of time for people."""


def spell_ms(length_ms: int) -> str:
    """Return a length of time as `40 ms` or `5.0 s`."""
    return f"{length_ms} ms" if length_ms < 1_000 else f"{length_ms / 1000:.1f} s"
