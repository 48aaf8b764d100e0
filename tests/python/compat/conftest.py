"""The faces, under the names that their users know."""

from towline import compat

compat.activate()
