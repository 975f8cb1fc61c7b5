"""The bilinear map of neural networks: a linear map of the products of two inputs."""

from __future__ import annotations

from ruda.core.errors import ShapeError
from ruda.ops.cast import astype
from ruda.ops.linear import linear
from ruda.ops.matmul import matmul
from ruda.ops.movement import expand_dims, permute_dims, reshape, squeeze
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


@composite
@given_tensors
def bilinear(
    input1: RudaTensor, input2: RudaTensor, weight: RudaTensor, bias: RudaTensor | None = None
) -> RudaTensor:
    """``sum over i, j of input1[..., i] * weight[o, i, j] * input2[..., j]``, plus ``bias [out]``.

    ``input1 [..., in1]``, ``input2 [..., in2]`` with equal leading axes and ``weight [out, in1,
    in2]`` give ``[..., out]``. Dtypes and errors as ``linear``.

    >>> bilinear(ruda.ones((5, 2)), ruda.ones((5, 3)), ruda.ones((4, 2, 3))).shape
    (5, 4)
    """
    fits = weight.ndim == 3 and input1.ndim > 0 and input1.shape[:-1] == input2.shape[:-1]
    if not fits or (input1.shape[-1], input2.shape[-1]) != weight.shape[1:]:
        got = f"{input1.shape}, {input2.shape} and weight {weight.shape}"
        expected = "[..., in1], [..., in2] and [out, in1, in2]"
        raise ShapeError("bilinear", "the inputs do not fit the weight", got, expected)
    out, first, second = weight.shape
    # One product with the weight as a matrix, then a sum against the second input.
    wide = linear(input1, reshape(permute_dims(weight, (0, 2, 1)), (out * second, first)))
    parts = reshape(wide, (*input1.shape[:-1], out, second))
    total = squeeze(matmul(parts, expand_dims(input2, -1)), -1)
    if bias is None:
        return total
    if bias.shape != (out,):
        raise ShapeError("bilinear", "bias does not fit the weight", bias.shape, (out,))
    return total + astype(bias, total.dtype, copy=False)
