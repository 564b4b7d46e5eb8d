"""Lets an environment without torch have it from another one of the same Python, for Python steps."""

import os
import sys

if os.environ.get("WELLFED_MORE_PACKAGES"):
    sys.path.append(os.environ["WELLFED_MORE_PACKAGES"])
