"""Exports of networks with open sizes: right at random sizes, nothing compiled, and as fast as other engines?

    python benchmarks/open_sizes.py --export FOLDER [--models llama,t5]
    python benchmarks/open_sizes.py FOLDER [--models llama,t5] [--count 40] [--seed 1] [--threads 1]
                                           [--fixed 4] [--json]

The first exports small configurations of the networks (``pip install torch transformers onnxscript``) by
``torch.onnx.export(dynamo=True)``, all of their sizes open. The second compiles each once and runs it at
random sizes, the ends of the ranges among them, in turns with onnxruntime. One row a network: sizes that were
right (within ``TOLERANCE`` of the largest element), compilations, seconds of compiling, medians of
milliseconds that the first run of a size takes more than later ones, of these, and the geometric mean of
onnxruntime's time over ours; of the first ``--fixed`` sizes also that of a model compiled for the size alone.
Exit status 1 where a result is wrong.
"""

import argparse
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnxruntime

import tilewright

#: The largest difference from onnxruntime that passes, as a part of the output's largest element.
TOLERANCE = 1e-4
#: Runs at a size after the first.
LATER = 5
_VOCABULARY = 128


@dataclass(frozen=True)
class Network:
    """A module with example inputs: the names of their open axes, and the values that these may have."""

    make: Callable[[Any, Any], tuple[Any, dict[str, Any]]]
    axes: Mapping[str, Mapping[int, str]]
    ranges: Mapping[str, tuple[int, int]]


def _tokens(torch: Any, *shape: int) -> Any:
    return torch.randint(0, _VOCABULARY, shape)


def _language(config: str, network: str, **options: Any) -> Network:
    def make(torch: Any, transformers: Any) -> tuple[Any, dict[str, Any]]:
        made = getattr(transformers, config)(**options)
        made._attn_implementation = "eager"
        inputs = {"input_ids": _tokens(torch, 2, 9), "attention_mask": torch.ones(2, 9, dtype=torch.int64)}
        return getattr(transformers, network)(made), inputs

    axes = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask")}
    return Network(make, axes, {"batch": (1, 4), "seq": (2, 96)})


def _t5(torch: Any, transformers: Any) -> tuple[Any, dict[str, Any]]:
    config = transformers.T5Config(
        vocab_size=_VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, use_cache=False
    )
    return transformers.T5Model(config), {
        "input_ids": _tokens(torch, 2, 9),
        "decoder_input_ids": _tokens(torch, 2, 7),
    }


def _whisper(torch: Any, transformers: Any) -> tuple[Any, dict[str, Any]]:
    config = transformers.WhisperConfig(
        vocab_size=_VOCABULARY,
        num_mel_bins=16,
        encoder_layers=2,
        encoder_attention_heads=4,
        decoder_layers=2,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        d_model=64,
        max_source_positions=50,
        max_target_positions=100,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return transformers.WhisperModel(config), {
        "input_features": torch.randn(2, 16, 100),
        "decoder_input_ids": _tokens(torch, 2, 7),
    }


def _clip(torch: Any, transformers: Any) -> tuple[Any, dict[str, Any]]:
    text = {
        "vocab_size": _VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 100,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    vision = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
    }
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=32)
    config._attn_implementation = "eager"
    ids = _tokens(torch, 3, 9)
    inputs = {
        "input_ids": ids,
        "pixel_values": torch.randn(2, 3, 32, 32),
        "attention_mask": torch.ones_like(ids),
    }
    return transformers.CLIPModel(config), inputs


def _convnext(torch: Any, transformers: Any) -> tuple[Any, dict[str, Any]]:
    config = transformers.ConvNextConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1])
    return transformers.ConvNextModel(config), {"pixel_values": torch.randn(2, 3, 64, 96)}


def _wav2vec2(torch: Any, transformers: Any) -> tuple[Any, dict[str, Any]]:
    config = transformers.Wav2Vec2Config(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        conv_dim=(32,) * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        vocab_size=_VOCABULARY,
    )
    config._attn_implementation = "eager"
    return transformers.Wav2Vec2Model(config), {"input_values": torch.randn(2, 2000)}


def _detr(torch: Any, transformers: Any) -> tuple[Any, dict[str, Any]]:
    backbone = transformers.ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        num_queries=10,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
    )
    config._attn_implementation = "eager"
    return transformers.DetrForObjectDetection(config), {"pixel_values": torch.randn(2, 3, 96, 128)}


_SMALL = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "use_cache": False,
    "pad_token_id": 0,
}
NETWORKS: Mapping[str, Network] = {
    "llama": _language("LlamaConfig", "LlamaForCausalLM", **_SMALL, num_key_value_heads=2),
    "phi3": _language(
        "Phi3Config", "Phi3ForCausalLM", **_SMALL, num_key_value_heads=2, bos_token_id=1, eos_token_id=2
    ),
    "gpt2": _language(
        "GPT2Config",
        "GPT2LMHeadModel",
        vocab_size=_VOCABULARY,
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=128,
        use_cache=False,
    ),
    "modernbert": _language(
        "ModernBertConfig",
        "ModernBertModel",
        vocab_size=_VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
        local_attention=8,
    ),
    "t5": Network(
        _t5,
        {"input_ids": {0: "batch", 1: "seq"}, "decoder_input_ids": {0: "batch", 1: "out"}},
        {"batch": (1, 4), "seq": (2, 96), "out": (2, 64)},
    ),
    "whisper": Network(
        _whisper,
        {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "out"}},
        {"batch": (1, 4), "out": (2, 96)},
    ),
    "clip": Network(
        _clip,
        {
            "input_ids": {0: "texts", 1: "seq"},
            "pixel_values": {0: "images"},
            "attention_mask": {0: "texts", 1: "seq"},
        },
        {"texts": (2, 6), "seq": (2, 96), "images": (2, 6)},
    ),
    "convnext": Network(
        _convnext,
        {"pixel_values": {0: "batch", 2: "h", 3: "w"}},
        {"batch": (1, 3), "h": (32, 160), "w": (32, 160)},
    ),
    "wav2vec2": Network(
        _wav2vec2, {"input_values": {0: "batch", 1: "time"}}, {"batch": (1, 3), "time": (800, 8000)}
    ),
    "detr": Network(
        _detr,
        {"pixel_values": {0: "batch", 2: "h", 3: "w"}},
        {"batch": (1, 3), "h": (64, 256), "w": (64, 256)},
    ),
}


def export(name: str, folder: Path) -> None:
    """Write the export of a network."""
    import torch  # noqa: PLC0415 (the measurement does without)
    import transformers  # noqa: PLC0415

    torch.manual_seed(1)
    network = NETWORKS[name]
    module, inputs = network.make(torch, transformers)
    dims = {size: torch.export.Dim(size, min=2, max=hi) for size, (_, hi) in network.ranges.items()}
    shapes = {
        value: {axis: dims[size] for axis, size in network.axes.get(value, {}).items()} for value in inputs
    }
    module.eval().config.return_dict = True
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (),
            folder / f"{name}.onnx",
            kwargs=inputs,
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
        )


def drawn(network: Network, count: int, rng: Random) -> list[dict[str, int]]:
    """Sizes: the ends of their ranges first, then random ones."""
    ends = [{size: bounds[end] for size, bounds in network.ranges.items()} for end in (0, 1)]
    rest = [{size: rng.randint(*bounds) for size, bounds in network.ranges.items()} for _ in range(count)]
    return (ends + rest)[:count]


def _feeds(
    session: Any, network: Network, sizes: Mapping[str, int], rng: np.random.Generator
) -> dict[str, Any]:
    feeds = {}
    for value in session.get_inputs():
        axes = network.axes.get(value.name, {})
        shape = [sizes[axes[at]] if at in axes else n for at, n in enumerate(value.shape)]
        if value.name.endswith("attention_mask"):
            mask = np.ones(shape, np.int64)
            mask[0, : shape[1] // 3] = 0
            feeds[value.name] = mask
        elif "int" in value.type:
            feeds[value.name] = rng.integers(3, _VOCABULARY, shape)
        else:
            feeds[value.name] = rng.standard_normal(shape).astype(np.float32)
    return feeds


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    made = run()
    return 1e3 * (time.perf_counter() - start), made


def _differs(made: Sequence[Any], wanted: Sequence[Any]) -> bool:
    for a, b in zip(made, wanted, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype or not np.isfinite(a).all():
            return True
        if a.size and np.abs(a - b).max() > TOLERANCE * max(np.abs(b).max(), 1e-3):
            return True
    return False


def measure(name: str, path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The row of a network."""
    network, rng = NETWORKS[name], np.random.default_rng(arguments.seed)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    seconds, model = _timed(
        lambda: tilewright.compile(path, threads=arguments.threads, dynamic=dict(network.ranges))
    )
    sizes = drawn(network, arguments.count, Random(arguments.seed))
    wrong: list[dict[str, int]] = []
    firsts, laters, theirs, alone = [], [], [], []
    for at, each in enumerate(sizes):
        feeds = _feeds(session, network, each, rng)
        wanted = session.run(None, feeds)
        first, made = _timed(lambda: model.run(None, feeds))  # noqa: B023 (called here)
        wrong += [each] if _differs(made, wanted) else []
        turns: dict[str, list[float]] = {"ours": [], "theirs": [], "alone": []}
        fixed = model.at(**each) if at < arguments.fixed else None
        for _ in range(LATER):
            turns["theirs"].append(_timed(lambda: session.run(None, feeds))[0])  # noqa: B023
            turns["ours"].append(_timed(lambda: model.run(None, feeds))[0])  # noqa: B023
            if fixed is not None:
                turns["alone"].append(_timed(lambda: fixed.run(None, feeds))[0])  # noqa: B023
        ours = statistics.median(turns["ours"])
        firsts.append(first - ours)
        laters.append(ours)
        theirs.append(statistics.median(turns["theirs"]) / ours)
        alone += [statistics.median(turns["alone"]) / ours] if fixed is not None else []
    return {
        "model": name,
        "right": len(sizes) - len(wrong),
        "of": len(sizes),
        "wrong": wrong[:4],
        "compilations": model.compilations - min(arguments.fixed, len(sizes)),
        "plans": len(model.plans),
        "compile_s": seconds / 1e3,
        "new_size_ms": statistics.median(firsts),
        "later_ms": statistics.median(laters),
        "theirs_over_ours": _mean(theirs),
        "fixed_over_ours": _mean(alone) if alone else None,
    }


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def main() -> int:
    """Export, or measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fixed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.models.split(","):
        path = arguments.folder / f"{name}.onnx"
        if arguments.export:
            export(name, arguments.folder)
            continue
        row = measure(name, path, arguments)
        failed |= row["right"] < row["of"]
        text = (
            json.dumps(row) if arguments.json else "  ".join(f"{key} {value}" for key, value in row.items())
        )
        print(text, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
