"""`python -m app`: where the launcher enters."""

from __future__ import annotations

import os
import sys

from app.cli import main

IMPORTED_WHEREVER_FOUND = {"rich": "structlog, for tracebacks that we never print", "webauthn": "Flask-Security"}
"""Large libraries that nothing here needs, but that others load where they are installed. The web process alone checks
passkeys, by webauthn."""

if __name__ == "__main__":
    for library in IMPORTED_WHEREVER_FOUND.keys() - ({"webauthn"} if "web" in sys.argv else set()):
        sys.modules[library] = None  # type: ignore[assignment]
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # there are none; to look takes 160 files
    main()
