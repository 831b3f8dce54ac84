"""``koala`` whose Python is the program that ``KOALA_TEST_PYTHON`` names: a demo's daemon is forked, too.

There is no MPI beside that program.
"""

import os
import sys

from koala.cli import main

sys.executable = os.environ["KOALA_TEST_PYTHON"]
main()
