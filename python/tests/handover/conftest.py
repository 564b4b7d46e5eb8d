"""Lets an environment without torch have it from another one of the same Python, for Python steps."""

import os
import sys

MORE = os.environ.get("WELLFED_MORE_PACKAGES", "")
if f"python{sys.version_info[0]}.{sys.version_info[1]}" in MORE:
    # Behind its own packages.
    sys.path.append(MORE)
