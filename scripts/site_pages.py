"""What the site does to a page before it is built; mkdocs calls it (`hooks` in mkdocs.yml).

Our pages put a block of code right below its sentence. Python's Markdown would take both for one
paragraph; it wants an empty line between them.
"""

import re

_BLOCK = re.compile(r"^(?P<indent>[ ]*)```.*?^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with empty lines around its blocks of code."""
    return _BLOCK.sub(lambda block: f"\n{block[0]}\n", markdown)
