"""Values of messages as commands print them in JSON."""

import base64


def value_field(value: bytes) -> dict[str, str]:
    """Return a value as the field `value`, or as `value_base64` if it is not UTF-8 text."""
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value).decode()}
