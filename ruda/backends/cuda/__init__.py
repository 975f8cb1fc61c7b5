"""The CUDA backend: kernels generated from the operator table and written by hand.

The files, from a plan to what runs on the device:

* The client: ``client`` is one GPU, with what it offers the host (``transfers``), other libraries
  (``interop``), optimizers (``inplace``) and compiled steps (``compiled_steps``). ``multi_device``
  lets those of several GPUs know of each other.
* A kernel for a plan: ``kernels`` lists the rows that have one. Ours are in ``prim``; ``blas``,
  ``dnn``, ``fft``, ``rand`` and ``solver`` call the vendor's libraries by ``bindings``.
* Generated CUDA C: ``types`` and ``geometry`` are for all. Maps are ``codegen`` with its
  ``codegen_templates``; fused ones ``codegen_region`` with ``codegen_steps``, ``codegen_reads`` and
  ``codegen_draws``; rows ``row_programs`` and ``codegen_rows`` with ``codegen_row_passes``,
  ``codegen_row_reads`` and ``codegen_row_pipes``; folds down columns ``codegen_down``; optimizers
  ``codegen_updates``. ``source`` is the text of kernels written by hand.
* From text to a launch: ``compiler``, ``batch_compile`` for many at once, ``cache`` on disk,
  ``driver``, ``early_context``, ``launch``, ``resident_clusters``.
* Memory: ``memory`` has the pool and handles, ``alloc_conf`` its settings, ``pool_guards`` what it
  does on request, ``donation`` results in place of operands, ``pinned`` the host's side,
  ``redzone`` and ``snapshot`` help to debug.
* Streams and graphs: ``stream_order``, ``capture`` with its ``capture_lock``, ``graphs``,
  ``dependent_launch``; of compiled steps ``memory_planning``, ``memory_layout``, ``inlets``.
* For people: ``faults`` with ``runs`` and ``user_code``, ``nvtx``, ``clock``.
"""
