"""Features as words: a JSON object from id to a list of word numbers."""

import json
from typing import Any, NoReturn

import numpy as np

from lumos.errors import InputError
from lumos.graph.arrays import refuse_width
from lumos.graph.feature_columns import Columns
from lumos.graph.ids import Ids, shown
from lumos.graph.text_table import INTEGER, LARGEST_ID


class WordLists:
    """A JSON object from id to the list of the device's words, numbered from 0.

    A word counts once, however often it is listed. A device without an entry has no words.
    """

    def __init__(self, text: str, file: str, *, integers: bool, width: int | None = None) -> None:
        self.file = file
        self._text = text
        self._width = width
        self._lists: dict[int | str, list[int]] = {}
        for key, words in self._pairs():
            if integers and not (
                INTEGER.fullmatch(key) and len(key) < 20 and int(key) <= LARGEST_ID
            ):
                self._refuse(key, f"{shown(key)} is not an integer id")
            device = int(key) if integers else key
            if integers and int(device) < 0:
                self._refuse(key, f"the id {key} is negative; ids must be >= 0")
            if device in self._lists:
                self._refuse(key, f"device {shown(key)} occurs twice; give it one list")
            self._lists[device] = self._checked(key, words)

    def _pairs(self) -> list[tuple[str, Any]]:
        try:
            content = json.loads(self._text, object_pairs_hook=_Object)
        except json.JSONDecodeError as error:
            raise InputError(
                f"{self.file}, line {error.lineno}: column {error.colno}: {error.msg}; it is not "
                "valid JSON"
            ) from None
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{self.file}, line 1: it is not readable JSON ({reason})") from None
        if not isinstance(content, _Object):
            raise InputError(
                f'{self.file}, line 1: an object {{"id": [words]}} is needed; '
                f"got {type(content).__name__}"
            )
        return content.pairs

    def _checked(self, key: str, words: Any) -> list[int]:
        if not isinstance(words, list):
            self._refuse(key, f"device {shown(key)} needs a list of words; got {shown(words)}")
        for word in words:
            if type(word) is not int:
                self._refuse(key, f"device {shown(key)}: the word {shown(word)} is no integer")
            limit = 2**31 - 1 if self._width is None else self._width
            if not 0 <= word < limit:
                self._refuse(key, f"device {shown(key)}: the word {word} is not in 0 … {limit - 1}")
        return list(words)

    def _check_width(self, width: int, used: int) -> None:
        """Refuse a word far beyond the others, and name who lists it."""
        try:
            refuse_width(width, used, "words")
        except InputError as error:
            device = next(key for key, words in self._lists.items() if width - 1 in words)
            self._refuse(str(device), f"device {shown(device)}: {error}")

    def _refuse(self, key: str, what: str) -> NoReturn:
        place = self._text.find(json.dumps(key, ensure_ascii=False))
        line = self._text.count("\n", 0, max(place, 0)) + 1
        raise InputError(f"{self.file}, line {line}: {what}")

    def ids(self) -> set[Any]:
        """Return the ids of the devices that the file speaks of."""
        return set(self._lists)

    def columns(self, ids: Ids) -> tuple[Columns, tuple[str, ...]]:
        """The features in the order of `ids`, and notes."""
        from scipy.sparse import csr_array

        known = ids if isinstance(ids, tuple) else ids.tolist()
        for device in sorted(self._lists.keys() - set(known), key=str)[:1]:
            self._refuse(str(device), f"device {shown(device)} is not a device of this graph")
        lists = [sorted(set(self._lists.get(device, ()))) for device in known]
        offsets = np.cumsum([0, *map(len, lists)])
        words = np.array([word for words in lists for word in words], dtype=np.int32)
        width = int(words.max(initial=-1)) + 1 if self._width is None else self._width
        self._check_width(width, len(np.unique(words)))
        ones = np.ones(len(words), dtype=np.float32)
        empty = sum(device not in self._lists for device in known)
        note = f"{empty} devices have no entry in {self.file}: they hold no words"
        matrix = csr_array((ones, words, offsets), shape=(len(known), width))
        return Columns(matrix), (note,) if empty else ()


class _Object:
    """A JSON object that kept its repeated keys."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs
