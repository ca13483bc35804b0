"""Names that every provider takes: ids of calls, and names of tools.

A session may have come from another provider, whose ids are longer or hold other letters.
"""

import re
from hashlib import blake2b

NOTHING_TO_READ = "[Content that only another provider can read.]"


class Names:
    """Makes names fit, the same one each time."""

    def __init__(self, longest: int, also: str = "") -> None:
        """Say how long a name may be, and what it may hold beside letters, digits, _ and -."""
        self._longest = longest
        self._refused = re.compile(f"[^a-zA-Z0-9_{re.escape(also)}-]")

    def call_id(self, name: str) -> str:
        """An id of a call."""
        return self._fitting(name)

    def tool(self, name: str) -> str:
        """The name of a tool."""
        return self._fitting(name)

    def _fitting(self, name: str) -> str:
        fitting = self._refused.sub("_", name)
        if name and fitting == name and len(name) <= self._longest:
            return name
        # What was changed is told apart by a digest: two names must not become one.
        mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        return f"{fitting[: self._longest - 9]}_{mark}"
