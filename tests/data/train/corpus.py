"""The training text: the King James Bible, as Debian's `bible-kjv` package prints it.

The translation dates from 1611 and its copyright is expired (see README.md). Two whole books, Ruth
and James, are held out: neither is retold elsewhere, as the gospels, Kings and Chronicles are, so
their loss is not flattered by near copies in the training text.
"""

import re
import subprocess

HELD_OUT_BOOKS = ("Ruth", "Jas")
# What is committed as heldout.txt: the opening chapters of the books held out.
SAMPLE_CHAPTERS = (("Ruth", 1), ("Jas", 1))

_VERSE = re.compile(r"(\d?[A-Za-z]+)(\d+):(\d+) (.*)")


def read_chapters():
    """Returns {(book, chapter): text}, in the order of the Bible, one verse a line."""
    printed = subprocess.run(
        ["bible", "-f", "gen1:1-rev22:21"], check=True, capture_output=True, encoding="ascii"
    ).stdout
    chapters = {}
    for line in printed.splitlines():
        match = _VERSE.fullmatch(line)
        if not match:
            raise ValueError(f"bible printed a line that is no verse: {line!r}")
        book, chapter, _, verse = match.groups()
        chapters.setdefault((book, int(chapter)), []).append(verse)
    return {key: "\n".join(verses) + "\n" for key, verses in chapters.items()}


def split(chapters):
    """Returns (training, validation, sample) as bytes; an empty line parts the chapters.

    `validation` is the books held out, `sample` the chapters of them that are committed.
    """

    def join(keep):
        return "\n".join(text for key, text in chapters.items() if keep(key)).encode("ascii")

    return (
        join(lambda key: key[0] not in HELD_OUT_BOOKS),
        join(lambda key: key[0] in HELD_OUT_BOOKS),
        join(lambda key: key in SAMPLE_CHAPTERS),
    )
