"""What ``ruda.explain`` answers: the strategies of an operator, and the one that runs."""

from __future__ import annotations

from typing import NamedTuple


class Explanation(NamedTuple):
    """What ``strategy="auto"`` runs, and for each strategy True or why it cannot run."""

    chosen: str
    strategies: dict[str, bool | str]

    def __str__(self) -> str:
        lines = [f"chosen: {self.chosen}"]
        lines += [
            f"{name}: {'can run' if answer is True else answer}"
            for name, answer in self.strategies.items()
        ]
        return "\n".join(lines)
