"""`python -m apps.weamind serve | doctor | richmenu apply | show | remove`."""

import sys

from .cli.arguments import main

if __name__ == "__main__":
    sys.exit(main())
