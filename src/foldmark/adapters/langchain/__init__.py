"""Foldmark in LangChain: a middleware for `create_agent`.

The agent's state keeps every message; the model receives a view that fits. Needs LangChain:
pip install 'foldmark[langchain]'.
"""

try:
    from .middleware import FoldmarkMiddleware
except ImportError as error:
    if (error.name or "").partition(".")[0] not in {"langchain", "langchain_core", "langgraph"}:
        raise
    hint = "this adapter needs LangChain 1.4 or newer: pip install 'foldmark[langchain]'"
    raise ImportError(hint, name=error.name) from None

__all__ = ["FoldmarkMiddleware"]
