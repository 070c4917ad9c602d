"""The legal values of an argument or setting: one check and one wording of the error for the whole package."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from edgemask.errors import InputError


@dataclass(frozen=True)
class Legal:
    """The legal values of a setting: numbers in a range, or one of several choices.

    Args:
        low: Smallest legal number.
        high: Largest legal number.
        open_low: Exclude `low` itself.
        open_high: Exclude `high` itself.
        whole: Accept integers only.
        optional: Accept None as well.
        choices: If given, the legal values; the range is ignored.

    >>> Legal(0, 1, open_high=True).check("dropout", 0)
    0.0
    >>> str(Legal(1, whole=True))
    'an integer in [1, inf)'
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    whole: bool = False
    optional: bool = False
    choices: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        left = "(" if self.open_low or self.low == -math.inf else "["
        right = ")" if self.open_high or self.high == math.inf else "]"
        kind = "an integer" if self.whole else "a number"
        return f"{kind} in {left}{self.low:g}, {self.high:g}{right}" + (" or None" if self.optional else "")

    def allows(self, value: Any) -> bool:
        """Return whether a value is legal."""
        if value is None and self.optional:
            return True
        if self.choices:
            return value in self.choices
        if not is_number(value) or (self.whole and not isinstance(value, int)):
            return False
        below = value < self.low or (self.open_low and value == self.low)
        above = value > self.high or (self.open_high and value == self.high)
        return not below and not above

    def check(self, name: str, value: Any) -> Any:
        """Return `value` as the type of its setting.

        Args:
            name: Name of the setting in the error message.
            value: The value to check.

        Returns:
            A choice or None as it is, an integer if only integers are legal, else a float.

        Raises:
            InputError: The value is not legal. The message names the setting, the legal values and the value.
        """
        if not self.allows(value):
            near = did_you_mean(value, map(str, self.choices))
            raise InputError(f"{name} must be {self}, got {value!r}{near}")
        if value is None or self.choices:
            return value
        return int(value) if self.whole else float(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number that fits a float (a boolean is not a number here)."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known name, or nothing if none is near.

    Args:
        name: The unknown name.
        known: The known names.

    >>> "no setting 'epoch'" + did_you_mean("epoch", ["epochs", "lr"])
    "no setting 'epoch'; did you mean 'epochs'?"
    >>> did_you_mean("zzz", ["epochs", "lr"])
    ''
    """
    near = get_close_matches(str(name), list(known), n=5, cutoff=0.6)
    swapped = [other for other in near if sorted(other) == sorted(str(name))]  # the same letters in another order
    return f"; did you mean {(swapped or near)[0]!r}?" if near else ""
