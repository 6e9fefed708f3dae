"""`python -m app`: where the launcher enters."""

from __future__ import annotations

import sys

from app.cli import main

if __name__ == "__main__":
    if "web" not in sys.argv:
        # Flask-Security imports webauthn wherever it finds it: 0.15 seconds, for passkeys that only web pages ask for.
        sys.modules["webauthn"] = None  # type: ignore[assignment]
    main()
