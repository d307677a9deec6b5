"""Small versions of more architectures that read or make images, volumes and points, with random weights.

They go on where ``torch_networks.py`` ends, whose table lists them with the rest: bilinear enlargement, hard
activations, branches of many shapes, groups of channels, pyramids of dilated windows, weights computed at run
time, reflected borders, sampling at computed places, decoding of detections.

Read from the top: classification, dense prediction, generation, points and volumes.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_parts import Layers, attention, conv


class Excitation(nn.Module):
    """Channels scaled by what a small network makes of their means, with a hard sigmoid."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(8, channels // 4)
        self.inner, self.outer = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.outer(functional.relu(self.inner(functional.adaptive_avg_pool2d(x, 1))))
        return x * functional.hardsigmoid(scale)


class HardBlock(nn.Module):
    """An inverted residual with hard swish, or rectified, with or without excitation."""

    def __init__(
        self,
        before: int,
        inner: int,
        after: int,
        kernel: int,
        stride: int,
        excite: bool,
        act: type[nn.Module],
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(before, inner, 1, act=act),
            conv(inner, inner, kernel, stride, inner, act),
            Excitation(inner) if excite else nn.Identity(),
            conv(inner, after, 1, act=None),
        )
        self.residual = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


def mobilenet_v3() -> nn.Module:
    """MobileNet-V3 small."""
    rectified, hard = nn.ReLU, nn.Hardswish
    blocks = [
        HardBlock(16, 16, 16, 3, 2, True, rectified),
        HardBlock(16, 72, 24, 3, 2, False, rectified),
        HardBlock(24, 88, 24, 3, 1, False, rectified),
        HardBlock(24, 96, 40, 5, 2, True, hard),
        HardBlock(40, 240, 40, 5, 1, True, hard),
        HardBlock(40, 240, 40, 5, 1, True, hard),
        HardBlock(40, 120, 48, 5, 1, True, hard),
        HardBlock(48, 144, 48, 5, 1, True, hard),
        HardBlock(48, 288, 96, 5, 2, True, hard),
        HardBlock(96, 576, 96, 5, 1, True, hard),
        HardBlock(96, 576, 96, 5, 1, True, hard),
    ]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(576, 1024), hard(), nn.Linear(1024, 1000)]
    return nn.Sequential(conv(3, 16, 3, 2, act=hard), *blocks, conv(96, 576, 1, act=hard), *head)


class InceptionBlock(nn.Module):
    """Branches of 1x1, 1x7 and 7x1, twice those, and a pooled one, joined along channels."""

    def __init__(self, channels: int, inner: int, out: int) -> None:
        super().__init__()

        def long(before: int, after: int, kernel: tuple[int, int]) -> nn.Module:
            padding = (kernel[0] // 2, kernel[1] // 2)
            layer = nn.Conv2d(before, after, kernel, padding=padding, bias=False)
            return nn.Sequential(layer, nn.BatchNorm2d(after), nn.ReLU())

        row, column = (1, 7), (7, 1)
        self.branches = Layers(
            [
                conv(channels, out, 1),
                nn.Sequential(conv(channels, inner, 1), long(inner, inner, row), long(inner, out, column)),
                nn.Sequential(
                    *(conv(channels, inner, 1), long(inner, inner, column), long(inner, inner, row)),
                    *(long(inner, inner, column), long(inner, out, row)),
                ),
                nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(channels, out, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Inception(nn.Module):
    """A stem and two blocks of factored 7x7 windows, a reduction with unequal branches."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *(nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()),
            *(nn.MaxPool2d(3, 2), conv(64, 80, 1), nn.Conv2d(80, 192, 3), nn.ReLU(), nn.MaxPool2d(3, 2)),
        )
        self.first, self.second = InceptionBlock(192, 64, 96), InceptionBlock(384, 80, 96)
        self.reduce = nn.Conv2d(384, 192, 3, 2)
        self.head = nn.Linear(576, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(self.stem(x)))
        x = torch.cat([self.reduce(x), functional.max_pool2d(x, 3, 2)], 1)
        return self.head(functional.relu(x).mean((2, 3)))


class GroupedBlock(nn.Module):
    """A bottleneck whose 3x3 is grouped; excitation where asked (RegNet-Y)."""

    def __init__(self, before: int, inner: int, after: int, groups: int, stride: int, excite: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(before, inner, 1),
            conv(inner, inner, 3, stride, groups),
            Excitation(inner) if excite else nn.Identity(),
            conv(inner, after, 1, act=None),
        )
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else conv(before, after, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.shortcut(x) + self.body(x))


def resnext() -> nn.Module:
    """One stage of ResNeXt-50 and the beginning of the next."""
    blocks = [GroupedBlock(64, 128, 256, 32, 1, False), GroupedBlock(256, 128, 256, 32, 1, False)]
    blocks += [GroupedBlock(256, 256, 512, 32, 2, False), GroupedBlock(512, 256, 512, 32, 1, False)]
    stem = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def regnet() -> nn.Module:
    """RegNet-Y-400MF, half as deep."""
    blocks = [GroupedBlock(32, 48, 48, 6, 2, True), GroupedBlock(48, 104, 104, 13, 2, True)]
    blocks += [GroupedBlock(104, 104, 104, 13, 1, True), GroupedBlock(104, 208, 208, 26, 2, True)]
    blocks += [GroupedBlock(208, 208, 208, 26, 1, True), GroupedBlock(208, 440, 440, 55, 2, True)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(440, 1000)]
    return nn.Sequential(conv(3, 32, 3, 2), *blocks, *head)


class Mixer(nn.Module):
    """MLP-Mixer: products along tokens and along channels in turn."""

    def __init__(self, width: int = 256, tokens: int = 196, depth: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.norms = Layers(nn.LayerNorm(width) for _ in range(2 * depth))
        self.across = Layers(
            nn.Sequential(nn.Linear(tokens, 128), nn.GELU(), nn.Linear(128, tokens)) for _ in range(depth)
        )
        self.along = Layers(
            nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, width)) for _ in range(depth)
        )
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for at, (across, along) in enumerate(zip(self.across, self.along, strict=True)):
            x = x + across(self.norms[2 * at](x).transpose(1, 2)).transpose(1, 2)
            x = x + along(self.norms[2 * at + 1](x))
        return self.head(x.mean(1))


class BilinearUNet(nn.Module):
    """Down by pooling, up by bilinear enlargement with aligned corners, skip connections joined."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def twice(before: int, after: int) -> nn.Sequential:
            return nn.Sequential(conv(before, after), conv(after, after))

        widths = [width, 2 * width, 4 * width, 4 * width]
        self.first = twice(3, width)
        self.down = Layers(twice(a, b) for a, b in pairwise(widths))
        self.up = Layers([twice(8 * width, 2 * width), twice(4 * width, width), twice(2 * width, width)])
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = [self.first(x)]
        for layer in self.down:
            skips.append(layer(functional.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for layer in self.up:
            x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)
            x = layer(torch.cat([skips.pop(), x], 1))
        return self.out(x)


class Yolo(nn.Module):
    """Cross-stage blocks, pooled pyramid, two scales, boxes decoded by a grid and anchors."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()

        def silu(before: int, after: int, kernel: int = 3, stride: int = 1) -> nn.Module:
            return conv(before, after, kernel, stride, act=nn.SiLU)

        self.first = nn.Sequential(silu(3, 16, 5, 2), silu(16, 32, 3, 2))
        self.left, self.right = silu(32, 16, 1), silu(32, 16, 1)
        self.inner = Layers(nn.Sequential(silu(16, 16, 1), silu(16, 16)) for _ in range(2))
        self.join, self.second, self.third = silu(32, 32, 1), silu(32, 64, 3, 2), silu(64, 128, 3, 2)
        self.narrow, self.wide, self.up = silu(128, 64, 1), silu(256, 64, 1), silu(128, 64)
        self.heads = Layers(nn.Conv2d(64, 3 * (5 + classes), 1) for _ in range(2))
        anchors = torch.tensor([[[10, 13], [16, 30], [33, 23]], [[30, 61], [62, 45], [59, 119]]])
        self.register_buffer("anchors", anchors.float())

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        left = self.left(x)
        for layer in self.inner:
            left = left + layer(left)
        fine = self.second(self.join(torch.cat([left, self.right(x)], 1)))
        pooled = [self.narrow(self.third(fine))]
        for _ in range(3):
            pooled.append(functional.max_pool2d(pooled[-1], 5, 1, 2))
        coarse = self.wide(torch.cat(pooled, 1))
        up = self.up(torch.cat([functional.interpolate(coarse, scale_factor=2.0), fine], 1))
        found = []
        for at, (level, stride) in enumerate(((up, 8), (coarse, 16))):
            y = self.heads[at](level)
            _, _, height, width = y.shape
            y = y.view(1, 3, -1, height, width).permute(0, 1, 3, 4, 2).sigmoid()
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack((columns, rows), -1) - 0.5
            place, size, rest = y.split((2, 2, y.shape[-1] - 4), -1)
            place = (place * 2 + grid) * stride
            size = (size * 2) ** 2 * self.anchors[at][None, :, None, None]
            found.append(torch.cat((place, size, rest), -1).flatten(1, 3))
        return torch.cat(found, 1)


class DilatedPyramid(nn.Module):
    """DeepLab's head: windows of several dilations and the whole image, joined and enlarged."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 32, 3, 2), conv(32, 64, 3, 2), conv(64, 128, 3, 2))
        self.branches = Layers([conv(128, width, 1)])
        for rate in (6, 12, 18):
            layer = nn.Conv2d(128, width, 3, padding=rate, dilation=rate, bias=False)
            self.branches.append(nn.Sequential(layer, nn.BatchNorm2d(width), nn.ReLU()))
        self.whole, self.join = conv(128, width, 1), conv(5 * width, width, 1)
        self.out = nn.Conv2d(width, 21, 1)

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[-2:]
        x = self.stem(x)
        whole = self.whole(functional.adaptive_avg_pool2d(x, 1))
        whole = functional.interpolate(whole, x.shape[-2:], mode="bilinear", align_corners=False)
        x = self.join(torch.cat([*(branch(x) for branch in self.branches), whole], 1))
        return functional.interpolate(self.out(x), size, mode="bilinear", align_corners=False)


class Segformer(nn.Module):
    """Attention whose keys and values come from a smaller image, mixed by depthwise windows."""

    def __init__(self, width: int = 64, ratio: int = 4, count: int = 2) -> None:
        super().__init__()
        self.patches, self.count = nn.Conv2d(3, width, 7, 4, 3), count
        self.norms = Layers(nn.LayerNorm(width) for _ in range(3))
        self.q, self.kv, self.out = (
            nn.Linear(width, width),
            nn.Linear(width, 2 * width),
            nn.Linear(width, width),
        )
        self.smaller = nn.Conv2d(width, width, ratio, ratio)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mix = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)
        self.head = nn.Conv2d(width, 19, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        batch, width, rows, columns = x.shape
        x = x.flatten(2).transpose(1, 2)
        y = self.norms[0](x)
        small = self.smaller(y.transpose(1, 2).reshape(batch, width, rows, columns)).flatten(2)
        kv = self.kv(self.norms[1](small.transpose(1, 2)))
        k, v = kv.view(batch, -1, 2, self.count, width // self.count).permute(2, 0, 3, 1, 4)
        q = self.q(y).view(batch, -1, self.count, width // self.count).transpose(1, 2)
        x = x + self.out(attention(q, k, v))
        y = self.up(self.norms[2](x)).transpose(1, 2).view(batch, -1, rows, columns)
        x = x + self.down(functional.gelu(self.mix(y).flatten(2).transpose(1, 2)))
        return self.head(x.transpose(1, 2).view(batch, width, rows, columns))


def generator() -> nn.Module:
    """DCGAN's generator: from noise to an image of 64 x 64 by transposed windows of 4 x 4."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 512, 4, 1, 0, bias=False)]
    for before, after in ((512, 256), (256, 128), (128, 64)):
        layers += [nn.BatchNorm2d(before), nn.ReLU()]
        layers.append(nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False))
    layers += [nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()]
    return nn.Sequential(*layers)


def discriminator() -> nn.Module:
    """DCGAN's discriminator: 4 x 4 windows of stride 2 with leaky rectifiers."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2)]
    for before, after in ((64, 128), (128, 256), (256, 512)):
        layers += [nn.Conv2d(before, after, 4, 2, 1, bias=False), nn.BatchNorm2d(after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(512, 1, 4), nn.Sigmoid())


class StyleGenerator(nn.Module):
    """Convolutions whose weights are scaled by a style and normalised, noise, enlargement."""

    def __init__(self, width: int = 64, style: int = 128) -> None:
        super().__init__()
        self.mapping = nn.Sequential(
            *(layer for _ in range(4) for layer in (nn.Linear(style, style), nn.LeakyReLU(0.2)))
        )
        self.start = nn.Parameter(torch.randn(1, width, 16, 16))
        self.weights = nn.ParameterList(torch.randn(width, width, 3, 3) for _ in range(3))
        self.styles = Layers(nn.Linear(style, width) for _ in range(3))
        self.noise = nn.ParameterList(torch.randn(1, 1, 16 * 2**at, 16 * 2**at) for at in range(3))
        self.colour = nn.Conv2d(width, 3, 1)

    def forward(self, z: Tensor) -> Tensor:
        style = self.mapping(z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8))
        x = self.start
        for at, (weights, layer, noise) in enumerate(zip(self.weights, self.styles, self.noise, strict=True)):
            if at:
                x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            scaled = weights * (layer(style)[0] + 1)[None, :, None, None]
            scaled = scaled * torch.rsqrt(scaled.square().sum((1, 2, 3), keepdim=True) + 1e-8)
            x = functional.leaky_relu(functional.conv2d(x, scaled, padding=1) + 0.1 * noise, 0.2)
        return self.colour(x)


class StyleTransfer(nn.Module):
    """Reflected borders, instance normalisation, residuals, nearest enlargement."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()

        def layer(before: int, after: int, kernel: int, stride: int = 1) -> nn.Sequential:
            border = nn.ReflectionPad2d(kernel // 2)
            window = nn.Conv2d(before, after, kernel, stride)
            return nn.Sequential(border, window, nn.InstanceNorm2d(after, affine=True), nn.ReLU())

        self.down = nn.Sequential(layer(3, width, 9), layer(width, 64, 3, 2), layer(64, 64, 3, 2))
        self.residual = Layers(nn.Sequential(layer(64, 64, 3), layer(64, 64, 3)) for _ in range(2))
        self.up = Layers([layer(64, 32, 3), layer(32, 16, 3)])
        self.out = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(16, 3, 9))

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(x)
        for layer in self.residual:
            x = x + layer(x)
        for layer in self.up:
            x = layer(functional.interpolate(x, scale_factor=2.0))
        return self.out(x)


class Flow(nn.Module):
    """Correlation of two images over displacements, and one of them sampled where the result points."""

    def __init__(self, width: int = 32, reach: int = 2) -> None:
        super().__init__()
        self.features = nn.Sequential(conv(3, width, 3, 2), conv(width, width, 3, 2))
        self.reach, count = reach, (2 * reach + 1) ** 2
        self.estimate = nn.Sequential(conv(count + width, 64), conv(64, 32), nn.Conv2d(32, 2, 3, padding=1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = self.features(x), self.features(y)
        _, _, rows, columns = a.shape
        r = self.reach
        padded = functional.pad(b, (r, r, r, r))
        costs = [
            (a * padded[:, :, i : i + rows, j : j + columns]).mean(1, keepdim=True)
            for i in range(2 * r + 1)
            for j in range(2 * r + 1)
        ]
        flow = self.estimate(torch.cat([functional.leaky_relu(torch.cat(costs, 1), 0.1), a], 1))
        places = torch.stack(
            torch.meshgrid(torch.linspace(-1, 1, columns), torch.linspace(-1, 1, rows), indexing="xy"), -1
        )
        warped = functional.grid_sample(b, places + 0.1 * flow.permute(0, 2, 3, 1), align_corners=True)
        return torch.cat([flow, warped], 1)


class PointNet(nn.Module):
    """Layers for each point, a learned transform of the points, the maximum over all."""

    def __init__(self) -> None:
        super().__init__()

        def layer(before: int, after: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv1d(before, after, 1), nn.BatchNorm1d(after), nn.ReLU())

        self.turn = nn.Sequential(layer(3, 64), layer(64, 128), layer(128, 512))
        self.angles = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 9))
        self.first = nn.Sequential(layer(3, 64), layer(64, 64))
        self.second = nn.Sequential(layer(64, 128), layer(128, 1024))
        self.head = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 40))

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.angles(self.turn(x).max(2).values).view(-1, 3, 3) + torch.eye(3)
        x = (x.transpose(1, 2) @ matrix).transpose(1, 2)
        return functional.log_softmax(self.head(self.second(self.first(x)).max(2).values), 1)


class VolumeNet(nn.Module):
    """A U of volumes: 3 x 3 x 3 windows, instance normalisation, transposed windows up."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()

        def layer(before: int, after: int, stride: int = 1) -> nn.Sequential:
            window = nn.Conv3d(before, after, 3, stride, 1)
            return nn.Sequential(window, nn.InstanceNorm3d(after, affine=True), nn.LeakyReLU(0.01))

        self.first, self.down = layer(1, width), layer(width, 2 * width, 2)
        self.deep, self.up = layer(2 * width, 2 * width), nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.join, self.out = layer(2 * width, width), nn.Conv3d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        x = self.up(self.deep(self.down(first)))
        return self.out(self.join(torch.cat([x, first], 1)))


class Radiance(nn.Module):
    """A network of points and directions: sines and cosines of many frequencies, a deep perceptron."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.register_buffer("frequencies", 2.0 ** torch.arange(6))
        inputs = 3 + 3 * 2 * 6
        self.first = Layers(nn.Linear(inputs if at == 0 else width, width) for at in range(4))
        self.second = Layers([nn.Linear(width + inputs, width), nn.Linear(width, width)])
        self.density, self.colour = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        angles = (x[..., None] * self.frequencies).flatten(-2)
        encoded = y = torch.cat([x, angles.sin(), angles.cos()], -1)
        for layer in self.first:
            y = functional.relu(layer(y))
        y = torch.cat([y, encoded], -1)
        for layer in self.second:
            y = functional.relu(layer(y))
        return torch.cat([torch.sigmoid(self.colour(y)), functional.softplus(self.density(y))], -1)
