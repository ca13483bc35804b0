"""The files that simple shell commands read or write."""

import pytest

from foldmark.digest.passages import shell_target
from foldmark.log.tool_targets import Span


@pytest.mark.parametrize(
    ("command", "file", "span"),
    [
        ("cat src/app.py", "src/app.py", Span()),
        ("cat -n 'src/app.py'", "src/app.py", Span()),
        ("cd /work && sed -n '10,200p' app.py", "app.py", Span(first=10, last=200)),
        ("nl -ba app.py | sed -n '1,80p'", "app.py", Span(first=1, last=80)),
        ("head -n 50 app.py", "app.py", Span()),
        ("tail -20 app.log 2>/dev/null", "app.log", Span()),
    ],
)
def test_a_simple_command_reads_a_file(command: str, file: str, span: Span) -> None:
    target = shell_target(command)
    assert target is not None
    assert (target.access, target.files, target.span) == ("read", (file,), span)


@pytest.mark.parametrize(
    "command",
    [
        "cat > src/app.py <<'EOF'\nprint(1)\nEOF",
        "cat <<EOF > src/app.py\nprint(1)\nEOF\npython src/app.py",
        "tee src/app.py << 'END'\nx\nEND",
        "sed -i 's/a/b/' src/app.py",
    ],
)
def test_a_simple_command_writes_a_file(command: str) -> None:
    target = shell_target(command)
    assert target is not None
    assert (target.access, target.files) == ("write", ("src/app.py",))


@pytest.mark.parametrize(
    "command",
    [
        "",
        "cat",
        "cat one.py two.py",
        "cat *.py",
        "cat $FILE",
        "cat app.py | grep def",
        "cat app.py && make",
        "cat app.py > copy.py",
        "grep -n def app.py",
        "sed 's/a/b/' app.py",
        "cat " + "x" * 1_000,
    ],
)
def test_other_commands_have_no_file(command: str) -> None:
    assert shell_target(command) is None


@pytest.mark.parametrize("piece", [" -a", " | head", "sed -n '1,2p' ", "cat -", " 1"])
def test_a_hostile_command_is_parsed_quickly(piece: str) -> None:
    assert shell_target("cat" + piece * 2_000 + "!;") is None
    assert shell_target("cat" + piece * 25 + "!;") is None
