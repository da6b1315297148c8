"""`python -m truecopy` is the command `truecopy`."""

import sys

from truecopy.cli import main

if __name__ == "__main__":
    sys.exit(main())
