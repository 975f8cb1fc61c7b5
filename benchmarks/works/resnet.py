"""ResNet-50 (He et al., 2015) with strides on the 3 x 3 convolutions, for ruda and for PyTorch."""

from __future__ import annotations

from typing import Any

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
WIDER = 4


def resnet50(nn: Any, last: bool, classes: int = 1000) -> Any:
    """The network made of the layers of ``nn``; ``last``: ask each for channels-last operands."""
    layout = {"layout": "nhwc"} if last else {}

    def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[Any]:
        half = size // 2
        conv = nn.Conv2d(inputs, outputs, size, stride, half, bias=False, **layout)
        return [conv, nn.BatchNorm2d(outputs, **layout)]

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            outputs = width * WIDER
            self.body = nn.Sequential(
                *convolution(inputs, width, 1),
                nn.ReLU(),
                *convolution(width, width, 3, stride),
                nn.ReLU(),
                *convolution(width, outputs, 1),
            )
            same = inputs == outputs and stride == 1
            shortcut = [] if same else convolution(inputs, outputs, 1, stride)
            self.shortcut = nn.Sequential(*shortcut)
            self.relu = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.relu(self.body(x) + self.shortcut(x))

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(*convolution(3, 64, 7, 2), nn.ReLU())
            self.pool = nn.MaxPool2d(3, 2, 1, **layout)
            blocks, inputs = [], 64
            for i, (count, width) in enumerate(STAGES):
                for k in range(count):
                    blocks.append(Block(inputs, width, 2 if i and not k else 1))
                    inputs = width * WIDER
            self.blocks = nn.Sequential(*blocks)
            self.head = nn.Linear(inputs, classes)

        def forward(self, x: Any) -> Any:
            x = self.blocks(self.pool(self.stem(x)))
            return self.head(x.mean(axis=(1, 2)) if last else x.mean((2, 3)))

    return Network()
