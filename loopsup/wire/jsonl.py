"""JSON-lines framing over a byte stream: split on LF only, bounded.

Never `str.splitlines()`: U+2028 and its kin are legal inside JSON strings.
"""

from __future__ import annotations


class LineSplitter:
    """Bytes in, whole lines out (without LF and without a CR before it).

    Linear in the input whatever the chunking. A line above `limit` bytes is dropped and counted in `dropped`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False
        self.dropped = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines completed by `data`."""
        lines: list[bytes] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._take(data[start:end])
            lines.extend(self._finish())
            start = end + 1
        self._take(data[start:])
        return lines

    def rest(self) -> bytes:
        """What came after the last LF (an unfinished line), at the end of the stream."""
        return b"".join(self._parts)

    def _take(self, part: bytes) -> None:
        if not part or self._skipping:
            return
        self._size += len(part)
        if self._size > self._limit:
            self._skipping = True
            self._parts.clear()
        else:
            self._parts.append(part)

    def _finish(self) -> list[bytes]:
        line, skipped = b"".join(self._parts), self._skipping
        self._parts, self._size, self._skipping = [], 0, False
        if skipped:
            self.dropped += 1
            return []
        return [line.removesuffix(b"\r")]
