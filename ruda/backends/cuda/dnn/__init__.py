"""Rows that cuDNN computes: the strategy ``vendor`` of attention and convolution."""
