"""`foldmark formats`: which transcripts can be read."""

from foldmark.transcripts.format import formats as known

from .options import AsJson
from .tables import About, listing, show, show_json, words

EXAMPLE = "Example: foldmark formats"


def formats(*, json: AsJson = False) -> None:
    """List the formats of transcripts that are known, those of installed plugins too."""
    if json:
        show_json([{"format": format.name, "about": format.about} for format in known()])
        return
    rows = ((words(format.name, "cyan"), About(format.about)) for format in known())
    show(listing(("format", "written by"), rows))
