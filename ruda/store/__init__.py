"""Tensors on disk: safetensors files, read with suspicion and written atomically."""
