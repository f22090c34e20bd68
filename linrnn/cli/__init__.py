"""The command line. Its packages come with the extra `train`."""

import os
import sys

from linrnn.util import extras
from linrnn.util.provenance import version_line


def main() -> None:
    """Run the command `linrnn`. A missing package is an error of one line that names the extra."""
    if sys.argv[1:] == ["--version"]:  # which needs no extra
        print(version_line())
        return
    try:
        with extras.needed("the command line"):
            from linrnn.cli import app
        with extras.needed("this command"):
            app.main()
    except extras.MissingPackageError as error:
        if "LINRNN_TRACEBACK" in os.environ:
            raise
        sys.stderr.write(f"linrnn: {error}\n")
        sys.exit(2)
