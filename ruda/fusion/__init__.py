"""Compiled steps: the trace of a function, its guards and state, and the replay.

The files, in the order in which a call meets them:

* The face: ``api``. ``pytree`` takes arguments apart; ``fast_path`` knows a call like the last one.
* The trace: ``trace`` runs the function under a ``tracer``, which makes a ``graph`` of what is done
  to ``symbols``. ``state`` has the symbols of handles from outside, ``sources`` say where a replay
  fetches them from, ``results`` and ``tape`` keep what leaves the function, ``lines`` knows the
  user's code.
* What it relies on: ``watch`` sees user functions run, ``bytecode`` what they mention and
  ``lookups`` which names they compute; ``guard_builder`` makes ``guards`` of what that reaches, by
  ``attribute_lookup`` and ``indirect_reads``. ``preconditions`` adds gradients and shared memory,
  ``compiled_guards`` makes one function of all.
* The graph, improved: ``passes`` fuse operators to a ``region``, ``schedule`` orders them,
  ``donations``, ``updates`` and ``inplace_writes`` find results that overwrite something.
* The run: ``program`` is one signature. ``replay`` runs it operator by operator, ``segments``
  joins operators on the CPU, ``captured`` makes a CUDA graph, with ``branches`` side by side,
  ``zero_copy`` a second one; ``copy_cost`` tells when none is worth it, ``retries`` when to try
  once more. ``commit`` ends a run.
* Memory: ``memory`` predicts the peak, ``liveness`` where it is, ``budget`` keeps within one.
* For people: ``report`` with ``flops`` and ``state_names``, ``lint``, ``lint_speed``; ``shadow``
  compares with eager code; ``bucket`` pads lengths.
"""
