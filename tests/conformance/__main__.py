"""Write docs/conformance.md: `make conformance`."""

import sys

from tests.conformance.page import PAGE, ConformanceError, page

if __name__ == "__main__":
    try:
        PAGE.write_text(page(), encoding="utf-8")
    except ConformanceError as error:
        sys.exit(str(error))
