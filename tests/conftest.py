"""For every test: signals as a terminal's foreground job has them.

A test run started in the background by a script, or under nohup, inherits SIGINT, SIGQUIT or SIGHUP as ignored,
and so would every process a test starts and means to interrupt.
"""

from __future__ import annotations

import os
import signal

from loopsup.cli.render import UNCUT

for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where nobody says otherwise, no test's text depends on the terminal (or the xdist worker) it happens to run in.
os.environ["COLUMNS"] = str(UNCUT)
