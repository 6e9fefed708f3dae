"""A rotation that dies: `python -m tests.silo.dying N` rotates the master key and is killed (-9) after its Nth step."""

from __future__ import annotations

import os
import signal
import sys
from itertools import count

from app import Part
from app.keys.rotation import rotate_master_key
from app.models import COMMAND_LINE
from app.setup import ready_app


def main(last: int) -> None:
    steps = count(1)

    def die_in_time(step: str) -> None:
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    with ready_app(Part.COMMAND_LINE).app_context():
        rotate_master_key(by=COMMAND_LINE, told=die_in_time)


if __name__ == "__main__":
    main(int(sys.argv[1]))
