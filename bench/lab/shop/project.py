"""A made-up software project: its files, which can be edited, and what its programs print.

All of it is about a service that keeps the books of shops. Knows nothing of agents, tools,
messages or times; texts are cut from blocks that are made once, so that megabytes cost little.
"""

from collections import deque
from collections.abc import Iterator
from itertools import count, islice
from random import Random
from string import Template
from typing import NamedTuple

from .chance import Roll

ROOT = "/srv/orders"
MODULES = ("cart", "stock", "ledger", "billing", "pricing", "shipping", "account", "invoice")
PLACES = ("model", "service", "store", "routes", "reports")
VERBS = ("settle", "cancel", "price", "refund", "close", "validate", "book", "release", "refill")
THINGS = ("order", "payment", "item", "customer", "refund", "receipt", "parcel", "coupon", "price")

_BETWEEN = "\n\n\n"  # blocks
_SHORT = 1_500  # characters
_NUMBER_WIDTH = 7  # of a line's number and its bar
_SOURCE = (
    '''def ${verb}_$thing($thing: $Thing, *, most: int = $n) -> list[$Other]:
    """Every $other of one $thing that is within the mark."""
    kept: list[$Other] = []
    for $other in $thing.${other}s:
        if $other.amount > most:
            log.warning("%s is over the mark of %d", $other.id, most)
            continue
        kept.append($other)
    return kept''',
    '''@dataclass(frozen=True)
class $Thing$Other:
    """What one $thing holds of one $other."""

    ${thing}_id: int
    ${other}_id: int
    amount: Decimal = Decimal("$n")
    noted_at: datetime = field(default_factory=now)

    def share(self) -> Decimal:
        return (self.amount / Decimal($n)).quantize(CENT)''',
    '''async def ${verb}_${thing}s(pool: Pool, ${other}_id: int) -> int:
    """How many rows of the $thing table were changed."""
    async with pool.acquire() as connection:
        changed = await connection.execute(
            "UPDATE ${thing}s SET state = $$1 WHERE ${other}_id = $$2 AND amount < $n",
            State.DONE,
            ${other}_id,
        )
    return int(changed.split()[-1])''',
    """@router.post("/${thing}s/{${thing}_id}/$verb", status_code=202)
async def ${verb}(${thing}_id: int, body: $Other) -> Answer:
    found = await store.${thing}(${thing}_id)
    if found is None:
        raise NotFound("$thing", ${thing}_id)
    if body.amount > Decimal("$n.00"):
        raise Refused(f"{body.amount} is more than a $thing can take")
    await service.${verb}_$thing(found, body)
    return Answer(id=found.id, state=found.state)""",
    '''class $Thing${Other}Error(ShopError):
    """A $thing and its $other do not agree."""

    def __init__(self, ${thing}_id: int, expected: Decimal, found: Decimal) -> None:
        super().__init__(f"$thing {${thing}_id}: {found} of {expected}")
        self.${thing}_id = ${thing}_id
        self.missing = expected - found
        self.again_in = $n  # seconds''',
)
_TESTS = (
    """def test_${verb}_${thing}_keeps_the_$other(shop: Shop) -> None:
    $thing = shop.${thing}(amount=$n)
    $other = shop.$other($thing)
    kept = service.${verb}_$thing($thing, most=$n)
    assert kept == [$other]
    assert $thing.amount == $n""",
    """async def test_${verb}_refuses_a_${thing}_without_a_$other(client: Client) -> None:
    answer = await client.post("/${thing}s/$n/$verb", json={"amount": "$n.50"})
    assert answer.status == 404
    assert answer.json()["about"] == "$thing"
    assert await client.count("${other}s") == 0""",
)
_TEMPLATES = tuple(Template(text) for text in (*_SOURCE, *_TESTS))


class Block(NamedTuple):
    """A function or class of a file: which template, with which words."""

    template: int
    verb: str
    thing: str
    other: str
    number: int

    @property
    def text(self) -> str:
        """Its source."""
        return _TEMPLATES[self.template].substitute(
            verb=self.verb,
            thing=self.thing,
            other=self.other,
            Thing=self.thing.title(),
            Other=self.other.title(),
            n=self.number,
        )


class Change(NamedTuple):
    """A block of a file before and after an edit, and the line it begins at."""

    path: str
    line: int
    old: str
    new: str

    @property
    def hunk(self) -> str:
        """The change as a diff shows it."""
        old, new = self.old.split("\n"), self.new.split("\n")
        lines = [f"@@ -{self.line},{len(old)} +{self.line},{len(new)} @@"]
        for before, after in zip(old, new, strict=True):
            lines += [f" {before}"] if before == after else [f"-{before}", f"+{after}"]
        return "\n".join(lines)


class File:
    """A file of blocks, and its text as long as no block changes."""

    def __init__(self, path: str, blocks: list[Block]) -> None:
        """Take what it is made of."""
        *_, folder, name = path.removesuffix(".py").split("/")
        self.path = path
        self._blocks = blocks
        self._head = f'"""The {name} of {folder}."""\n\nfrom orders import log'
        self._texts: list[str] = []  # of the blocks, once they were asked for
        self._text = ""
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """All of it."""
        if not self._texts:
            self._texts = [block.text for block in self._blocks]
        if not self._text:
            self._text = _BETWEEN.join([self._head, *self._texts])
        return self._text

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        if not self._lines:
            self._lines = self.text.split("\n")
        return self._lines

    def change(self, rng: Random) -> Change:
        """Edit one block, and tell what was changed."""
        before = self.text
        place = rng.randrange(len(self._blocks))
        block, old = self._blocks[place], self._texts[place]
        others = [thing for thing in THINGS if thing not in (block.thing, block.other)]
        block = block._replace(other=rng.choice(others), number=block.number % 90 + 2)
        line = before.count("\n", 0, before.index(old)) + 1
        self._blocks[place], self._texts[place] = block, block.text
        self._text, self._lines = "", []
        return Change(self.path, line, old, block.text)


class Project:
    """The files, and what was done to them of late."""

    def __init__(self, rng: Random, size: int) -> None:
        """Take the mean size of what will be asked for; files are up to thirty times as long."""
        self._rng = rng
        self.focus = rng.choice(MODULES)  # what the work is about
        self.sources = [
            *(f"{ROOT}/src/orders/{module}/{place}.py" for module in MODULES for place in PLACES),
            *(f"{ROOT}/tests/test_{module}.py" for module in MODULES),
        ]
        migrations = [f"{ROOT}/migrations/{n:04}_{thing}.py" for n, thing in enumerate(THINGS, 1)]
        self.files = {path: self._file(path, size) for path in (*self.sources, *migrations)}
        self.large = self.sources[3:11:4]
        for path in self.large:
            self.files[path] = self._file(path, size * 35)
        self.hunks: deque[tuple[str, str]] = deque(maxlen=200)
        self.rolls = {name: Roll(rng, _lines(rng, name)) for name in _LINES}

    def _file(self, path: str, size: int) -> File:
        room = size * self._rng.uniform(0.8, 2.5)
        kinds = range(len(_SOURCE), len(_TEMPLATES)) if "/test" in path else range(len(_SOURCE))
        blocks: list[Block] = []
        while room > 0 or not blocks:
            kind, verb = self._rng.choice(kinds), self._rng.choice(VERBS)
            thing, other = self._rng.sample(THINGS, 2)
            blocks.append(Block(kind, verb, thing, other, self._rng.randint(2, 90)))
            room -= 330  # about the length of a block
        return File(path, blocks)

    def module(self) -> str:
        """The module that the work is about, or in one case of three another."""
        return self.focus if self._rng.random() < 0.67 else self._rng.choice(MODULES)

    def source(self) -> str:
        """A file of such a module."""
        module = self.module()
        return self._rng.choice([path for path in self.sources if module in path])

    def numbered(self, path: str, offset: int, limit: int) -> str:
        """So many lines of a file from an offset, with their numbers, as agents read them."""
        lines = self.files[path].lines
        shown = lines[offset : offset + limit]
        body = "\n".join([f"{number:05}| {line}" for number, line in enumerate(shown, offset + 1)])
        end = offset + len(shown)
        rest = "End of file" if end == len(lines) else f"There are more lines; go on at {end}"
        return f"<file>\n{body}\n\n({rest}, {len(lines)} lines in all)\n</file>"

    def span(self, path: str, size: int) -> tuple[int, int]:
        """The offset and limit at which about so many characters of a file are read."""
        lines = self.files[path].lines
        mean = sum(map(len, lines[:100])) / len(lines[:100]) + 1 + _NUMBER_WIDTH
        limit = max(5, round(size / mean))
        if limit >= len(lines):
            return 0, 2_000
        return self._rng.randrange(0, len(lines) - limit, 10), limit

    def edit(self, path: str) -> Change:
        """Change a file, and remember it for the next diff."""
        change = self.files[path].change(self._rng)
        self.hunks.append((path, change.hunk))
        return change

    def write(self, path: str) -> str:
        """Make a short file anew, and give its text."""
        self.files[path] = self._file(path, _SHORT)
        return self.files[path].text

    def matches(self, word: str, size: int) -> Iterator[tuple[str, list[str]]]:
        """Files and their lines with a word in them, until there is enough."""
        paths = list(self.files)
        start = self._rng.randrange(len(paths))
        for path in paths[start:] + paths[:start]:
            if size <= 0:
                return
            if word not in self.files[path].text:
                continue
            lines = enumerate(self.files[path].lines, 1)
            found = (f"  Line {number}: {line}" for number, line in lines if word in line)
            shown = list(islice(found, max(1, size // 50)))
            size -= sum(map(len, shown)) + len(path)
            yield path, shown


_LINES = {
    "log": "2026-01-02 {clock},{m:03} INFO  orders.{module} {verb} {thing} {n}{m}: {m} ms",
    "status": " M src/orders/{module}/{thing}s_{verb}.py",
    "commits": "{m:03x}{n:02x}f{m:03} {verb} the {thing} before its {other} is closed (#{m})",
    "listing": "-rw-r--r-- 1 shop shop {m:>6} Jan {n:>2} 09:{n:02} {module}_{thing}_{verb}.py",
    "tests": "test_{verb}_{thing}_{n}_keeps_the_{other} PASSED",
    "records": '  {{"id": {n}{m}, "{thing}": "{module}-{m}", "amount": "{m}.00", "open": true}}',
    "prose": (
        "A {module} keeps its {thing} until every {other} of the day has been seen to; whoever "
        "wants to {verb} it sooner must ask for at most {m} at a time."
    ),
}


def _lines(rng: Random, name: str) -> Iterator[str]:
    for second in count():
        thing, other = rng.sample(THINGS, 2)
        yield _LINES[name].format(
            clock=f"{9 + second // 3600}:{second // 60 % 60:02}:{second % 60:02}",
            module=rng.choice(MODULES),
            verb=rng.choice(VERBS),
            thing=thing,
            other=other,
            n=rng.randint(1, 31),
            m=rng.randint(1, 999),
        )
