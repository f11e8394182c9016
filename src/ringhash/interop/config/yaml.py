"""YAML (and so JSON) with the line of every value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from ringhash.interop.config.errors import ConfigError, at, needs, read_text
from ringhash.interop.given import digits, shortened

__all__ = ["Value", "load"]


class Value:
    """A value of a YAML file, which knows where it stands."""

    def __init__(self, path: str, node: Any) -> None:
        self.path = path
        self.node = node
        self.line: int = node.start_mark.line + 1

    def fail(self, message: str) -> NoReturn:
        """Raise a `ConfigError` with the place of this value."""
        at(self.path, self.line, message)

    @property
    def kind(self) -> str:
        """mapping, sequence or scalar."""
        return str(self.node.id)

    def fields(self) -> dict[str, Value]:
        """The values of a mapping by name."""
        if self.kind != "mapping":
            self.fail("must be a mapping")
        found: dict[str, Value] = {}
        for key, value in self.node.value:
            if key.id != "scalar":
                at(self.path, key.start_mark.line + 1, "must be a name")
            if key.value in found:
                at(self.path, key.start_mark.line + 1, f"`{key.value}` is given twice")
            found[key.value] = Value(self.path, value)
            found[key.value].line = key.start_mark.line + 1
        return found

    def items(self) -> Iterator[Value]:
        """The values of a sequence."""
        if self.kind != "sequence":
            self.fail("must be a list")
        return (Value(self.path, node) for node in self.node.value)

    def text(self) -> str:
        """A scalar as it is written."""
        if self.kind != "scalar":
            self.fail("must be one value")
        return str(self.node.value)

    def whole(self) -> int:
        """A whole number; Envoy also takes it wrapped, as in {value: 3}."""
        if self.kind == "mapping" and list(self.fields()) == ["value"]:
            return self.fields()["value"].whole()
        text = self.text()
        number = digits(text)
        if number is None:
            self.fail(f"must be a whole number, not {shortened(text)!r}")
        return number

    def truth(self) -> bool:
        """True or false, in the words of YAML."""
        text = self.text().lower()
        if text not in ("true", "yes", "on", "false", "no", "off"):
            self.fail(f"must be true or false, not {text!r}")
        return text in ("true", "yes", "on")


def load(path: str) -> Value:
    """Return the one document of a YAML or JSON file."""
    yaml = needs("yaml", "PyYAML")
    text = read_text(path)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = getattr(error, "position", 0)  # of a character that YAML does not allow
        line = mark.line + 1 if mark else text.count("\n", 0, position) + 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise ConfigError(f"{path}:{line}: {problem}") from None
    if node is None:
        raise ConfigError(f"{path}: is empty")
    return Value(path, node)
