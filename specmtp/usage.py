"""Command lines, and what a wrong option should have been: one sentence, with the nearest name."""

import difflib
import inspect
import re
from argparse import ArgumentError
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import auto_cli

from specmtp.errors import one_line_errors

_WRAPPINGS = (
    r"Problem with given class_path '[^']*': (?P<inner>.*?)(?: - Expected a <class|$)",
    r"Does not validate against any of the Union subtypes.*? Errors: - (?P<inner>.*?)(?: - Expected a <class|$)",
)
_UNKNOWN = (
    r"[Uu]nrecognized arguments: -*(?P<name>[^\s=]+)",
    r"[Oo]ption '(?P<name>[^']+)' is not accepted",
    r"does not accept option '(?P<name>[^']+)'",
)


def command_line(*functions: Callable[..., Any]) -> None:
    """Calls a function, or the one of several that is named, with the command line's arguments.

    A mistake becomes one sentence and exit code 2.
    """
    options = [name for function in functions for name in inspect.signature(function).parameters]
    with one_line_errors():
        try:
            auto_cli(functions[0] if len(functions) == 1 else list(functions), exit_on_error=False)
        except ArgumentError as error:
            raise ValueError(plain_sentence(str(error), options)) from error


def plain_sentence(message: str, options: Iterable[str]) -> str:
    """A parser's message without its wrappings; an unknown option with the nearest of ``options``.

    >>> plain_sentence("unrecognized arguments: --gama 4", ["gammas", "tokens"])
    "there is no option 'gama': did you mean 'gammas'?"
    >>> plain_sentence("unrecognized arguments: --modle.mtp_depth 2", ["model.mtp_depth"])
    "there is no option 'modle.mtp_depth': did you mean 'model.mtp_depth'?"
    """
    message = (
        " ".join(message.split()).split(" - Not a valid subclass of ")[0].split(" - Expected a <class 'NoneType'>")[0]
    )
    key = re.search(r'Parser key "([^"]+)"', message)
    for wrapping in _WRAPPINGS:
        if found := re.search(wrapping, message):
            message = found["inner"]
    for pattern in _UNKNOWN:
        if found := re.search(pattern, message):
            name = found["name"]
            short = {re.split(r"[. ]", option)[-1]: option for option in options}
            own = name.rsplit(".", 1)[-1]
            if own in short and name != short[own] and difflib.SequenceMatcher(None, name, short[own]).ratio() > 0.8:
                return f"there is no option '{name}': did you mean '{short[own]}'?"
            if own in short:
                return f"there is no option '{name}' here: '{short[own]}' is another part's or another model's"
            near = difflib.get_close_matches(own, short, n=1, cutoff=0.5)
            hint = f"did you mean '{short[near[0]]}'?" if near else "--help lists the options"
            return f"there is no option '{name}': {hint}"
    if key and key[1] not in message:
        message = f"{key[1]}: {message}"
    if found := re.fullmatch(r"(\w+): the following arguments are required: ([\w, ]+)", message):
        return " and ".join(f"--{found[1]}.{name}" for name in found[2].split(", ")) + " must be given"
    message = re.sub(r"Expected a typing\.Literal\[(.*?)\]", r"one of \1 is wanted", message)
    return re.sub(r"\(?<class '([\w.]*\.)?(\w+)'>\)?", r"\2", message.replace('Parser key "', "").replace('":', ":"))


def refuse_duplicate_keys(file: Path) -> None:
    """Refuses a YAML file in which a key stands twice in one mapping; loaders would silently take the last.

    Raises:
        ValueError: a key stands twice, or the file is no YAML; with the line.
    """
    if not file.is_file():
        return  # the parser tells
    try:
        root = yaml.compose(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not readable as YAML: {error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise ValueError(f"{file} is empty, or no YAML of keys and values")
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    raise ValueError(
                        f"{file}: the key {key.value!r} stands twice, again in line {key.start_mark.line + 1}"
                    )
                seen.add(key.value)
                pending.append(value)
