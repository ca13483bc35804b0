"""Foldmark in LangChain: a middleware for `create_agent`.

The agent's state stays whole; what the model is asked with is a view that fits. Needs LangChain:
pip install 'foldmark[langchain]'.
"""

try:
    from .middleware import FoldmarkMiddleware
except ImportError as error:
    if (error.name or "").partition(".")[0] not in {"langchain", "langchain_core", "langgraph"}:
        raise
    told = "this adapter needs LangChain 1.4 or newer: pip install 'foldmark[langchain]'"
    raise ImportError(told, name=error.name) from None

__all__ = ["FoldmarkMiddleware"]
