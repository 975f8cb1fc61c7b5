"""How tensors, modules and optimizers look: text for the terminal, HTML for notebooks.

Nothing here is imported by ``import ruda``; ``__repr__`` and ``_repr_html_`` load it on first use.
"""
