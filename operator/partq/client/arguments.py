"""What a client is made with: settings that cannot be used are refused by their names."""

from collections.abc import Mapping

from partq.errors import SettingsError


def check_range(name: str, value: object, least: float, most: float) -> None:
    """Check a number.

    Raises:
        SettingsError: it is none, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{name}: got {type(value).__name__}, expected a number")
    if not least <= value <= most:
        raise SettingsError(f"{name}: got {value}, expected {least} to {most}")


def check_texts(texts: Mapping[str, object], *, needed: tuple[str, ...] = ()) -> None:
    """Check texts by their names; None is one that is left out.

    Raises:
        SettingsError: one is no text, or left out and needed.
    """
    for name, text in texts.items():
        if not isinstance(text, str) and (text is not None or name in needed):
            raise SettingsError(f"{name}: got {type(text).__name__}, expected text")


def check_token(token: str | None) -> None:
    """Check a token. What is wrong with it is told without it.

    Raises:
        SettingsError: it is no text, or has a line end in it, as one has that was read from a file.
    """
    check_texts({"token": token})
    if token is not None and not token.isprintable():
        raise SettingsError(
            "token: got characters that cannot be printed, such as the line end of the file that "
            "it was read from; strip it"
        )
