"""What a reading works out only when it is asked for, and then keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazy(Generic[T]):
    """`functools.cached_property` without a lock for all readings, as Python itself has it since 3.12."""

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, reading: Any, owner: type) -> T:
        found: T = self._work_out(reading)
        reading.__dict__[self._name] = found
        return found
