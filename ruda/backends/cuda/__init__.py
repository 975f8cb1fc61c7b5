"""The CUDA backend: kernels generated from the operator table and written by hand."""
