"""Example values of every setting."""

from typing import Any

# Two values for each key; neither is the default if there are enough values.
EXAMPLES: dict[str, tuple[Any, Any]] = {
    "store": ("/data/one.db", "postgresql://app@db.example/two"),
    "model": ("anthropic:claude-sonnet-4-5", "openai:gpt-5"),
    "policy": ("opencode", "codelet"),
    "window": (100_000, 32_768),
    "input": (90_000, 30_000),
    "output": (8_192, 4_096),
    "auto": (True, False),
    "prune": (True, False),
    "reserved": (0, 12_000),
    "threshold": (0.8, 100_000),
    "thresholds": ({"openai:*": 0.5}, {"gpt-5": 90_000, "claude-*": 0.75}),
    "tail_tokens": (0, 5_000),
    "output_cap": (16_000, 1_000),
    "protected_tools": (("skill", "todo"), ("read",)),
    "estimate": ("round4", "tiktoken:o200k_base"),
    "summarizer": ("digest", "openai:gpt-5-mini"),
    "base_url": ("http://one.example/v1", "http://two.example/v1"),
    "summary_tokens": (1_000, 9_000),
    "compaction_calls": (0, 3),
    "compaction_seconds": (30.0, 0.5),
    "compaction_cost": (0.25, 2.0),
    "mask_secrets": (True, False),
    "lease_seconds": (60.0, 2.5),
    "wait_seconds": (1.0, 0.25),
    "hook_seconds": (7.0, 0.5),
    "durable": (True, False),
}
