"""Files that shell commands read or write, where that is plain to see."""

import pytest

from foldmark.digest.passages import shell_target
from foldmark.log.tool_targets import Span


@pytest.mark.parametrize(
    ("command", "file", "span"),
    [
        ("cat mill/wheel.py", "mill/wheel.py", Span()),
        ("cat -n 'mill/wheel.py'", "mill/wheel.py", Span()),
        ("cd /mill && sed -n '10,200p' wheel.py", "wheel.py", Span(first=10, last=200)),
        ("nl -ba wheel.py | sed -n '1,80p'", "wheel.py", Span(first=1, last=80)),
        ("head -n 50 wheel.py", "wheel.py", Span()),
        ("tail -20 wheel.log 2>/dev/null", "wheel.log", Span()),
    ],
)
def test_a_plain_command_reads_a_file(command: str, file: str, span: Span) -> None:
    found = shell_target(command)
    assert found is not None
    assert (found.access, found.files, found.span) == ("read", (file,), span)


@pytest.mark.parametrize(
    "command",
    [
        "cat > mill/wheel.py <<'EOF'\nprint(1)\nEOF",
        "cat <<EOF > mill/wheel.py\nprint(1)\nEOF\npython mill/wheel.py",
        "tee mill/wheel.py << 'END'\nx\nEND",
        "sed -i 's/a/b/' mill/wheel.py",
    ],
)
def test_a_plain_command_writes_a_file(command: str) -> None:
    found = shell_target(command)
    assert found is not None
    assert (found.access, found.files) == ("write", ("mill/wheel.py",))


@pytest.mark.parametrize(
    "command",
    [
        "",
        "cat",
        "cat one.py two.py",
        "cat *.py",
        "cat $FILE",
        "cat wheel.py | grep turn",
        "cat wheel.py && make",
        "cat wheel.py > copy.py",
        "grep -n turn wheel.py",
        "sed 's/a/b/' wheel.py",
        "cat " + "x" * 1_000,
    ],
)
def test_what_is_not_plain_stays_a_command(command: str) -> None:
    assert shell_target(command) is None


@pytest.mark.parametrize("piece", [" -a", " | head", "sed -n '1,2p' ", "cat -", " 1"])
def test_a_hostile_command_comes_to_an_end(piece: str) -> None:
    assert shell_target("cat" + piece * 2_000 + "!;") is None
    assert shell_target("cat" + piece * 25 + "!;") is None
