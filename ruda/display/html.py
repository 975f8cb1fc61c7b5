"""A tensor as a card for notebooks: facts, heat map, histogram, statistics, layout, values."""

from __future__ import annotations

import math
from typing import Any

from ruda.display import histogram, palette
from ruda.display.heatmap import Picture, heat_map
from ruda.display.sample import stored_shape
from ruda.display.style import chip, facts, folded, frame, span, text
from ruda.display.summary import Summary, summarize
from ruda.display.text import values_text
from ruda.display.words import extent, layout, memory, number, share

# Exact statistics up to this many elements, about 60 ms.
EXACT = 1 << 22
# Values of up to this many elements are shown unfolded.
OPEN_VALUES = 36


def card(tensor: Any, traced: bool = False) -> str:
    """The HTML of ``tensor``, without any script or anything from outside.

    A traced tensor and one on the null device have no values and show their facts alone.
    """
    spec = tensor.spec
    if traced or spec.client.device.kind == "null":
        note = chip("traced") if traced else chip("no values")
        return frame(_head(tensor) + note)
    if not spec.size:
        return frame(_head(tensor) + chip("empty"), _layout(tensor))
    values = folded("values", f"<pre>{text(values_text(tensor))}</pre>", spec.size <= OPEN_VALUES)
    if spec.size == 1:
        return frame(_head(tensor), values, _layout(tensor))
    summary = summarize(tensor, EXACT)
    picture = heat_map(tensor, summary)
    body = f'<div class="ruda-body">{_map(tensor, picture)}{_statistics(tensor, summary, picture)}'
    return frame(_head(tensor) + _warnings(summary), f"{body}</div>", values, _layout(tensor))


def _head(tensor: Any) -> str:
    spec = tensor.spec
    said = [
        span("title", "tensor"),
        span("shape", extent(spec.shape)),
        chip(spec.dtype),
        chip(spec.client.device),
    ]
    if tensor.node is not None:
        said.append(chip("requires grad"))
    if not spec.contiguous or (tensor.handle.root is not None and spec.size):
        said.append(chip("view"))
    return "".join([*said, span("soft", _stored(spec))])


def _stored(spec: Any) -> str:
    """The memory of the elements; only what is stored of an expanded tensor."""
    stored = math.prod(stored_shape(spec)) * spec.dtype.itemsize
    return memory(stored) + (" stored" if stored < spec.nbytes else "")


def _warnings(summary: Summary) -> str:
    about = "" if summary.exact else "about "
    counts = (("NaN", summary.nan), ("inf", summary.plus), ("−inf", summary.minus))
    return "".join(chip(f"{about}{count:,} {name}", True) for name, count in counts if count)


def _map(tensor: Any, picture: Picture) -> str:
    name = f"heat map of {extent(tensor.spec.shape)} {tensor.spec.dtype}"
    image = (
        f'<img class="ruda-map" src="{picture.address}" width="{picture.width}" '
        f'height="{picture.height}" alt="{text(name)}">'
    )
    notes = f'<div class="ruda-note">{text("; ".join(picture.notes))}</div>'
    return f"<div>{image}{_legend(tensor, picture)}{notes if picture.notes else ''}</div>"


def _legend(tensor: Any, picture: Picture) -> str:
    scale = picture.scale
    if scale.values is not None:
        keys = palette.labels(scale)
        said = [_key(color, name) for color, name in keys]
    elif scale.empty:
        said = []
    else:
        said = [_ramp(scale, "|x| " if tensor.spec.dtype.kind == "complex" else "")]
    names = {palette.NAN: "NaN", palette.PLUS: "inf", palette.MINUS: "−inf"}
    said += [_key(palette.css((*palette.MARKS[m], 255)), names[m]) for m in picture.marks]
    return f'<div class="ruda-legend">{"".join(said)}</div>'


def _key(color: str, name: str) -> str:
    return f'<span class="ruda-key"><i style="background:{color}"></i>{text(name)}</span>'


def _ramp(scale: palette.Scale, bars: str) -> str:
    if not scale.high > scale.low:
        color = palette.css(scale.colors[len(scale.colors) // 2])
        return _key(color, f"{bars}{number(scale.low)}")
    stops = ",".join(palette.css(color) for color in scale.colors[:: palette.LEVELS // 12])
    low, high = ("≤ ", "≥ ") if scale.clipped else ("", "")
    return (
        f"{span('soft', bars + low + number(scale.low))}"
        f'<span class="ruda-ramp" style="background-image:linear-gradient(90deg,{stops})"></span>'
        f"{span('soft', high + number(scale.high))}"
    )


def _statistics(tensor: Any, summary: Summary, picture: Picture) -> str:
    dtype = tensor.spec.dtype
    if summary.low is None:
        return '<div class="ruda-note">no finite value</div>'
    zeros = share(summary.zeros / summary.size)
    if dtype.kind == "bool":
        parts = [_shares(summary)]
    else:
        parts = [_histogram(summary, picture.scale, dtype)] if summary.low < summary.high else []
        names = ("min", "max", "mean", "std", "median", "zero")
        median = summary.quantiles[2]
        values = (summary.low, summary.high, summary.mean, summary.std, median)
        pairs = zip(names, [*map(number, values), zeros], strict=True)
        parts.append(facts(list(pairs)))
    notes = ["of magnitudes"] if dtype.kind == "complex" else []
    if not summary.exact:
        notes.append(f"from a sample of {summary.seen:,} of {summary.size:,} elements")
    if notes:
        parts.append(f'<div class="ruda-note">{text("; ".join(notes))}</div>')
    return f"<div>{''.join(parts)}</div>"


def _shares(summary: Summary) -> str:
    true = summary.size - summary.zeros
    part = true / summary.size
    counts = facts([("True", f"{true:,}"), ("False", f"{summary.zeros:,}")])
    bar = f'<div class="ruda-share"><i style="width:{100 * part:.4g}%"></i></div>'
    return f"<div>{text(share(part))} True</div>{bar}{counts}"


def _histogram(summary: Summary, scale: palette.Scale, dtype: Any) -> str:
    low, high = histogram.limits(summary, scale)
    whole = dtype.is_integer
    counts = histogram.bars(summary, scale, whole)
    # Halved, since the difference of two float64 may not be one.
    zero = -low / 2 / (high / 2 - low / 2) if low < 0 < high and not whole else None
    ends = [number(int(x) if whole else x) for x in (low, high)]
    if scale.clipped:
        ends = [f"≤ {ends[0]}", f"≥ {ends[1]}"]
    line = "".join(f"<span>{text(end)}</span>" for end in ends)
    return f'{histogram.svg(counts, zero)}<div class="ruda-ends">{line}</div>'


def _layout(tensor: Any) -> str:
    spec = tensor.spec
    pairs = [
        ("elements", f"{spec.size:,}"),
        ("memory", f"{_stored(spec)}, {spec.dtype.itemsize} B each"),
        ("layout", layout(spec)),
        ("strides", str(spec.strides)),
    ]
    if tensor.handle.root is not None:
        base = spec.client.base(tensor.handle.root)
        pairs.append(("view of", f"{memory(base.nbytes)}, from element {tensor.metadata.offset:,}"))
    if tensor.share_count > 1:
        pairs.append(("shared by", f"{tensor.share_count} tensors"))
    if tensor.node is not None:
        made = "a leaf" if tensor.is_leaf else f"made by {tensor.node.plan.op.name}"
        gradient = ", has a gradient" if tensor.grad is not None else ""
        pairs.append(("tape", made + gradient))
    return folded("layout and memory", facts(pairs, as_list=True))
