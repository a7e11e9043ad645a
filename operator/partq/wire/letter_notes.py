"""What an application said of a dead letter, as Redis keeps it until the letter is sent."""

import msgspec

from partq.core.dead_letters import LetterNote
from partq.errors import InternalError
from partq.excerpts import excerpt


class _StoredNote(msgspec.Struct, omit_defaults=True):
    """A `LetterNote` as Redis has it; what a later version adds is ignored."""

    reason: str = ""
    description: str = ""
    is_asked_for: bool = False
    is_quarantined: bool = False


def encode_note(note: LetterNote | None) -> str:
    """Return a note as Redis has it; empty without a note."""
    if note is None:
        return ""
    fields = (note.reason, note.description, note.is_asked_for, note.is_quarantined)
    return msgspec.json.encode(_StoredNote(*fields)).decode()


def decode_note(text: bytes | None) -> LetterNote:
    """Read a note; without text an empty one.

    Raises:
        InternalError: it is damaged.
    """
    if not text:
        return LetterNote()
    try:
        stored = msgspec.json.decode(text, type=_StoredNote)
    except msgspec.DecodeError as error:
        raise InternalError(
            f"store: the note of a dead letter is damaged at {excerpt(text)!r}; expected JSON "
            "with reason, description and is_asked_for"
        ) from error
    return LetterNote(stored.reason, stored.description, stored.is_asked_for, stored.is_quarantined)
