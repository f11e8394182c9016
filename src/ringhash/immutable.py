"""Objects whose attributes are set once, when they are made."""

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["Immutable", "slot_setter"]


class Immutable:
    """A mix-in that refuses to set or delete attributes."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is immutable; its {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is immutable; its {name} cannot be deleted")


def slot_setter(cls: type, name: str) -> Callable[[Any, object], None]:
    """Return what sets the slot `name` all the same: for the class itself, when it makes an object."""
    setter: Callable[[Any, object], None] = cls.__dict__[name].__set__
    return setter
