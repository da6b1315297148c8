"""`python -m truecopy.explaining`: watch every operation of the installed torch, and write the data anew."""

from __future__ import annotations

import sys

from truecopy.explaining.building import DATA, build, write


def main() -> int:
    """Write the file, and say how many operations it holds."""
    explanations = sorted(build(), key=lambda one: one.name)
    write(explanations)
    sys.stderr.write(f"{DATA.name}: {len(explanations)} operations\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
