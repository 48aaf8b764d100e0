"""``python -m towline.compat pytest ARGS``: pytest with the faces importable under their original names."""

from __future__ import annotations

import sys

from towline import compat

USAGE = "usage: python -m towline.compat pytest [ARGS for pytest]"


def main(arguments: list[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if arguments[:1] != ["pytest"]:
        print(f"{USAGE}\ntowline.compat: error: the first argument is 'pytest'", file=sys.stderr)
        return 2
    compat.activate()
    import pytest

    return int(pytest.main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
