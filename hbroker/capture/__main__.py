"""`python -m hbroker.capture`: `hbroker capture`."""

import sys

from hbroker.capture.command import capture_main

sys.exit(capture_main())
