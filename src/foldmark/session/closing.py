"""Base classes for objects that are used as context managers and closed at the end."""

from typing import Self


class Closing:
    """Context manager that closes itself at the end of `with`."""

    def close(self) -> None:
        """Release all resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close this object."""
        self.close()


class AsyncClosing:
    """Context manager that closes itself at the end of `async with`."""

    async def aclose(self) -> None:
        """Release all resources."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Return this object."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close this object."""
        await self.aclose()
