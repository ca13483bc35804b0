"""What is used in a `with` or an `async with`, and closed at its end."""

from typing import Self


class Closing:
    """Closed at the end of a `with`."""

    def close(self) -> None:
        """Let go of what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Use it; it is closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


class AsyncClosing:
    """Closed at the end of an `async with`."""

    async def aclose(self) -> None:
        """Let go of what is held."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Use it; it is closed at the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.aclose()
