"""Reads HTML strictly: every tag is closed in order, and nothing comes from outside."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

_VOID = {"img", "br"}
_OUTSIDE = re.compile(r"https?:|//|@import|url\(|expression\(|javascript:", re.IGNORECASE)


class Page(HTMLParser):
    """The tags of a page, the text outside its style sheet, and its pictures."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.pictures: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in _VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name == "src":
                assert value is not None and value.startswith("data:image/png;base64,")
                self.pictures.append(value)
            elif value is not None:
                assert not _OUTSIDE.search(value), value

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            assert not _OUTSIDE.search(data), data
            return
        assert self.open or not data.strip(), "text outside the card"
        self.words.append(data)

    @property
    def text(self) -> str:
        """All text, a space between elements."""
        return " ".join(self.words)


def read(source: str) -> Page:
    """Check that ``source`` is well formed and needs nothing from outside; its page."""
    page = Page(source)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    for svg in re.findall(r"<svg.*?</svg>", source, re.DOTALL):
        ElementTree.fromstring(svg)
    return page
