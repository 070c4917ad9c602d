"""The legal values of an argument or setting: one check and one wording of the error for the whole package."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from edgemask.errors import InputError

UNITS = {"s": 1, "m": 60, "h": 3600}


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
        if not is_number(value) or (self.whole and not isinstance(value, Integral)):
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
    """Return whether a value is a finite number that fits a float, of Python or NumPy (a boolean is not one here)."""
    try:
        return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False


def parse_duration(value: Any) -> float | None:
    """Return a time budget in seconds.

    Args:
        value: A text such as `90s`, `10m` or `2h`, a number of seconds as text or number, or None.

    Raises:
        InputError: The value is anything else, or not positive.

    >>> parse_duration("90"), parse_duration("1.5m"), parse_duration("2h"), parse_duration(90), parse_duration(None)
    (90.0, 90.0, 7200.0, 90.0, None)
    """
    if value is None:
        return None
    number, factor = value, 1
    if isinstance(value, str):
        number, factor = (value[:-1], UNITS[value[-1]]) if value[-1:] in UNITS else (value, 1)
        with suppress(ValueError):
            number = float(number)
    if not (is_number(number) and 0 < number * factor < math.inf):
        raise InputError(
            f"budget must be a time such as 90s, 10m or 2h, or a positive number of seconds, got {value!r}"
        )
    return float(number * factor)


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
