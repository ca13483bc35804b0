"""The user's own text, carried verbatim across a pivot.

The first request and standing instructions come before the summary. The open request comes after
it, where the work continues. All of it depends only on messages before the marker, so that its
bytes stay the same as the session grows.
"""

from foldmark.model.messages import FilePart
from foldmark.policy import Policy
from foldmark.tokens.counters import truncate_middle
from foldmark.tokens.media import media_tokens

from .log import Log, handle
from .user_requests import AttachedFile, UserRequest

HEADING = "The user's own words from before this point:"
REPEATED = "[The request on which the following work was done, repeated from before the summary:]"


def user_text_budget(policy: Policy, usable: int) -> int:
    """The tokens for the user's text: the policy's, but at most a quarter of the window."""
    return min(policy.view.user_text, usable // 4) if usable else policy.view.user_text


def open_request(log: Log, before: int) -> UserRequest | None:
    """The newest request before an index, if it has no answer yet."""
    request = log.requests.newest(before)
    return None if request is None or log.requests.is_answered(request, before) else request


def carried_user_text(log: Log, marker: int, tail: int | None, budget: int) -> str:
    """The first request and the standing instructions that a pivot folds, or ""."""
    start = marker if tail is None else tail
    first = log.requests.all[0] if log.requests.all else None
    repeated = _request_to_repeat(log, marker, tail)
    sections: list[str] = []
    visible = repeated_request(log, marker, tail, budget)
    if first is not None and first != repeated and first.index < start:
        state = "answered" if log.requests.is_answered(first, marker) else "open"
        text = truncate_middle(first.text, budget // 3, log.count, handle(first.ordinal))
        sections.append(f"First request ({state}):\n{text}")
        visible += text
    rules = _standing_instructions(log, start, budget // 3, visible)
    if rules:
        listed = (rule if rule.startswith(("- ", "* ")) else f"- {rule}" for rule in rules)
        sections.append("Standing instructions:\n" + "\n".join(listed))
    return "\n\n".join([HEADING, *sections]) if sections else ""


def repeated_request(
    log: Log, marker: int, tail: int | None, budget: int, *, whole: bool = True
) -> str:
    """The folded request that the messages after the summary work on, or "".

    An open request is complete regardless of its length, unless `whole` is false because a view
    size was requested. An answered one is truncated to the budget.
    """
    request = _request_to_repeat(log, marker, tail)
    if request is None:
        return ""
    if request != open_request(log, marker):
        text = truncate_middle(request.text, budget // 3, log.count, handle(request.ordinal))
        return f"{REPEATED}\n{text}"
    text = request.text
    if not whole:  # at most half of the requested view: the budget is a quarter of it
        text = truncate_middle(text, 2 * budget, log.count, handle(request.ordinal))
    return "\n".join([REPEATED, text, *_hidden_files(request, budget)])


def repeated_files(log: Log, marker: int, tail: int | None, budget: int) -> tuple[FilePart, ...]:
    """The files of the open request that are shown again with it."""
    request = _request_to_repeat(log, marker, tail)
    if request is None or request != open_request(log, marker):
        return ()
    return tuple(file.part for file in visible_files(request, budget))


def visible_files(request: UserRequest, budget: int) -> list[AttachedFile]:
    """The first files of a request that fit the budget: the request may be about them."""
    files: list[AttachedFile] = []
    for file in request.files:
        budget -= file_tokens(file.part)
        if budget < 0:
            break
        files.append(file)
    return files


def file_tokens(part: FilePart) -> int:
    """The tokens of a visible file."""
    return media_tokens(part.url, part.mime)


def _hidden_files(request: UserRequest, budget: int) -> list[str]:
    """Placeholders of the other files, unless the request's text consists of placeholders."""
    visible = visible_files(request, budget)
    others = [file for file in request.files if file not in visible]
    lines = [f"{file.placeholder[:-1]}; recall {handle(file.ordinal)}]" for file in others]
    placeholders = "\n\n".join(file.placeholder for file in request.files)
    return [] if request.text == placeholders else lines


def _request_to_repeat(log: Log, marker: int, tail: int | None) -> UserRequest | None:
    if tail is None:
        return open_request(log, marker)
    # A tail that starts within a turn needs the turn's request, even if that is answered. A tail
    # that starts at a synthetic user message ("go on") needs it only while it is open.
    request = log.requests.newest(tail)
    is_split = not log.entries[tail].message.is_user
    if log.requests.is_request(tail) or request is None:
        return None
    return request if is_split or request == open_request(log, marker) else None


def _standing_instructions(log: Log, start: int, budget: int, visible: str) -> list[str]:
    """The newest standing instructions that fit the budget and are not visible yet."""
    texts: dict[str, None] = {}
    for rule in reversed(log.requests.rules):
        if rule.index < start and rule.text not in texts and rule.text not in visible:
            budget -= log.count(rule.text) + 2
            if budget < 0:
                break
            texts[rule.text] = None
    return list(reversed(texts))
