"""The look of all cards: one style sheet without anything from outside.

Colours come from the notebook's theme where it names them (JupyterLab, VS Code), else from the
system's light or dark preference. Every output carries the sheet, since none may rely on another.
"""

from __future__ import annotations

import html
import re

_LIGHT = "--ruda-text0:#1f2328;--ruda-soft0:#66707b;--ruda-paper0:#ffffff;--ruda-bar:#4a7bd0"
_DARK = "--ruda-text0:#e4e6ea;--ruda-soft0:#98a1ac;--ruda-paper0:#1b1d21;--ruda-bar:#7ba4f0"

_SHEET = f"""
.ruda {{ {_LIGHT}; }}
@media (prefers-color-scheme: dark) {{ .ruda {{ {_DARK}; }} }}
[data-jp-theme-light="true"] .ruda, body.vscode-light .ruda,
html[theme="light"] .ruda {{ {_LIGHT}; }}
[data-jp-theme-light="false"] .ruda, body.vscode-dark .ruda,
html[theme="dark"] .ruda {{ {_DARK}; }}
.ruda {{
  --ruda-text: var(--jp-content-font-color1, var(--vscode-editor-foreground, var(--ruda-text0)));
  --ruda-soft: var(--jp-content-font-color2,
    var(--vscode-descriptionForeground, var(--ruda-soft0)));
  --ruda-paper: var(--jp-layout-color0, var(--vscode-editor-background, var(--ruda-paper0)));
  --ruda-line: rgba(128, 128, 128, 0.28);
  --ruda-wash: rgba(128, 128, 128, 0.11);
  --ruda-mono: var(--jp-code-font-family, var(--vscode-editor-font-family,
    ui-monospace, SFMono-Regular, Menlo, Consolas, monospace));
  box-sizing: border-box; display: inline-block; max-width: 100%; min-width: 22em;
  padding: 0.7em 0.9em 0.75em; border: 1px solid var(--ruda-line); border-radius: 8px;
  color: var(--ruda-text); background: var(--ruda-paper); text-align: left;
  font: 13px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums;
}}
.ruda-head {{ display: flex; flex-wrap: wrap; align-items: baseline; gap: 0.25em 0.6em; }}
.ruda-title {{ font-weight: 650; }}
.ruda-shape {{ font-size: 1.08em; font-weight: 600; }}
.ruda-soft, .ruda-note {{ color: var(--ruda-soft); }}
.ruda-note {{ font-size: 0.9em; }}
.ruda-chip {{
  padding: 0 0.5em; border-radius: 1em; background: var(--ruda-wash);
  font-size: 0.88em; white-space: nowrap;
}}
.ruda-warn {{ box-shadow: inset 0 0 0 1px currentColor; font-weight: 600; }}
.ruda-body {{ display: flex; flex-wrap: wrap; gap: 0.9em 1.6em; margin-top: 0.65em; }}
.ruda-body > div {{ min-width: 0; }}
.ruda .ruda-map {{ display: block; max-width: 100%; margin: 0; image-rendering: pixelated; }}
.ruda-legend {{
  display: flex; flex-wrap: wrap; align-items: center; gap: 0.15em 0.6em; margin-top: 0.45em;
  max-width: 484px; font-size: 0.9em;
}}
.ruda-ramp {{
  width: 110px; height: 9px; border-radius: 2px; box-shadow: inset 0 0 0 1px var(--ruda-line);
}}
.ruda-key {{ white-space: nowrap; }}
.ruda-key i {{
  display: inline-block; width: 9px; height: 9px; margin-right: 0.35em; border-radius: 2px;
}}
.ruda .ruda-bars {{ display: block; max-width: 100%; border-bottom: 1px solid var(--ruda-line); }}
.ruda-bars rect {{ fill: var(--ruda-bar); }}
.ruda-zero {{ stroke: var(--ruda-soft); stroke-width: 1; stroke-dasharray: 2 2; }}
.ruda-share {{
  width: 260px; max-width: 100%; height: 9px; margin-top: 0.2em; overflow: hidden;
  border-radius: 5px; background: rgba(128, 128, 128, 0.3);
}}
.ruda-share i {{ display: block; height: 100%; background: var(--ruda-bar); }}
.ruda-ends {{
  display: flex; justify-content: space-between; max-width: 260px; font-size: 0.9em;
  color: var(--ruda-soft);
}}
.ruda-facts {{
  display: grid; grid-template-columns: max-content auto max-content auto;
  gap: 0.05em 0.8em; max-width: 260px; margin-top: 0.5em;
}}
.ruda-list {{ grid-template-columns: max-content auto; max-width: none; }}
.ruda-facts span:nth-child(odd) {{ color: var(--ruda-soft); }}
.ruda-facts:not(.ruda-list) span:nth-child(even) {{ text-align: right; }}
.ruda details {{ margin: 0; }}
.ruda-more {{ margin-top: 0.5em !important; }}
.ruda summary {{ cursor: pointer; }}
.ruda-more > summary {{ color: var(--ruda-soft); }}
.ruda pre {{
  margin: 0.3em 0 0; padding: 0.5em 0.7em; overflow: auto; max-height: 24em;
  border-radius: 5px; border: 0;
  color: inherit; background: var(--ruda-wash); font: 12px/1.45 var(--ruda-mono);
}}
.ruda-tree {{ margin-top: 0.5em; min-width: 30em; }}
.ruda-tree details > div {{
  margin-left: 0.33em; padding-left: 1em; border-left: 1px solid var(--ruda-line);
}}
.ruda-tree summary, .ruda-row {{ padding: 0.06em 0.3em; border-radius: 4px; }}
.ruda-tree summary:hover, .ruda-row:hover {{ background: var(--ruda-wash); }}
.ruda-row {{ padding-left: 1.2em; }}
.ruda-count {{ float: right; padding-left: 2em; color: var(--ruda-soft); }}
.ruda-code {{ font: 0.94em var(--ruda-mono); }}
"""

STYLE = f"<style>{re.sub(chr(10) + ' *', ' ', _SHEET).strip()}</style>"


def text(value: object) -> str:
    """``value`` with everything escaped that HTML gives a meaning."""
    return html.escape(str(value), quote=True)


def chip(value: object, warn: bool = False) -> str:
    """A short fact in a rounded box."""
    return f'<span class="ruda-chip{" ruda-warn" if warn else ""}">{text(value)}</span>'


def span(kind: str, value: object) -> str:
    """``value``, escaped, in the class ``ruda-kind``."""
    return f'<span class="ruda-{kind}">{text(value)}</span>'


def facts(pairs: list[tuple[str, str]], as_list: bool = False) -> str:
    """Names and values in columns."""
    cells = "".join(f"<span>{text(n)}</span><span>{text(v)}</span>" for n, v in pairs)
    return f'<div class="ruda-facts{" ruda-list" if as_list else ""}">{cells}</div>'


def folded(title: str, inside: str, opened: bool = False) -> str:
    """Something that unfolds under ``title``."""
    state = " open" if opened else ""
    return f'<details class="ruda-more"{state}><summary>{text(title)}</summary>{inside}</details>'


def frame(head: str, *parts: str) -> str:
    """A card: style, head line and parts that are HTML already."""
    return f'<div class="ruda">{STYLE}<div class="ruda-head">{head}</div>{"".join(parts)}</div>'
