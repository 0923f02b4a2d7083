"""Components by name: those of hanme, and those of installed packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from hanme.errors import HanmeError, one_line

C = TypeVar("C", bound=Callable[..., Any])


class Registry(MutableMapping[str, C], Generic[C]):
    """Classes by name. Entry points of installed packages are looked up on first use.

    A class of this process is added by assignment, ``ENCODERS["mine"] = Mine``.

    Args:
        kind: What they are, such as ``"encoder"``; the group of entry points is ``hanme.KINDs``.
        base: The class that all derive from.
        builtin: The classes of hanme.
    """

    def __init__(self, kind: str, base: type, builtin: Mapping[str, C]) -> None:
        self.kind, self.base, self.builtin = kind, base, dict(builtin)
        self.group = f"hanme.{kind.replace(' ', '_')}s"
        self._known: dict[str, C] = dict(builtin)

    @cached_property
    def _entries(self) -> dict[str, list[EntryPoint]]:
        """The entry points by name, without their modules being imported."""
        entries: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=self.group):
            others = entries.setdefault(entry.name, [])
            if (_package(entry), entry.value) not in [(_package(e), e.value) for e in others]:
                others.append(entry)
        return entries

    def __getitem__(self, name: str) -> C:
        entries = self._entries.get(name, [])
        if entries and (name in self.builtin or len(entries) > 1):
            other = "hanme" if name in self.builtin else _package(entries[1])
            raise HanmeError(
                f"{self.kind} {name!r}: {_package(entries[0])} and {other} both provide it; "
                "uninstall one, or rename its entry point"
            )
        if name not in self._known and entries:
            self._known[name] = self._load(entries[0])
        return self._known[name]

    def _load(self, entry: EntryPoint) -> C:
        where = f"{self.kind} {entry.name!r} of {_package(entry)}"
        try:
            loaded: C = entry.load()
        except Exception as error:  # whatever the module raises
            why = f"{type(error).__name__}: {one_line(error)}"
            raise HanmeError(f"{where}: cannot import {entry.value} ({why})") from None
        if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
            base = f"{self.base.__module__}.{self.base.__qualname__}"
            raise HanmeError(f"{where}: {entry.value} is not a subclass of {base}")
        return loaded

    def find(self, name: str) -> C:
        """Return a class by name; raise an error that lists the names for an unknown one."""
        if name not in self:
            raise HanmeError(
                f"Expected `{self.kind}` to be one of {', '.join(self)}, but got {name!r}; if a "
                "plug-in provides it, install its package"
            )
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._entries

    def __setitem__(self, name: str, value: C) -> None:
        if not (isinstance(value, type) and issubclass(value, self.base)):
            base = f"{self.base.__module__}.{self.base.__qualname__}"
            raise HanmeError(f"{self.kind} {name!r}: expected a subclass of {base}, not {value!r}")
        self._known[name] = value

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._known, *sorted(self._entries)]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _package(entry: EntryPoint) -> str:
    return f"package {entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
