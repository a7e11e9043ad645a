"""How commands write lengths of time for people."""


def spell_ms(length_ms: int) -> str:
    """Return a length of time as `40 ms` or `5.0 s`."""
    return f"{length_ms} ms" if length_ms < 1_000 else f"{length_ms / 1000:.1f} s"


def spell_age(age_ms: int) -> str:
    """Return for how long something has waited, as `0.4 s`, `12 s`, `3 min` or `2 h`."""
    seconds = age_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
