"""`python -m hbroker`: the command line."""

import sys

from hbroker.cli import main

sys.exit(main())
