"""Towline: the tensor data plane of an LLM fleet.

Every failure is a :class:`towline.Error` and, by its code, a built-in exception too (``towline.errors``).
"""

from pkgutil import extend_path as _extend_path

# In a checkout the built module lies in the build folder (scripts/python puts both on the path); in a wheel, here.
__path__ = _extend_path(__path__, __name__)

from towline._core import version as __version__  # noqa: E402
from towline.errors import Error  # noqa: E402
from towline.replica import Replica, Report, pull, serve  # noqa: E402

__all__ = ["Error", "Replica", "Report", "__version__", "pull", "serve"]
