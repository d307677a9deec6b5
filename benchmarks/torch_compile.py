"""torch.compile with this back end on small models of transformers: results, gradients, sizes, speed.

    python benchmarks/torch_compile.py --part equal        results and gradients, sizes fixed and open
    python benchmarks/torch_compile.py --part gradients    the worst parameter, ours and eager's, against f64
    python benchmarks/torch_compile.py --part training     losses of 100 steps beside eager's
    python benchmarks/torch_compile.py --part sizes        one plan for all sizes: compilations and errors
    python benchmarks/torch_compile.py --part first        seconds to the first result, a process each
    python benchmarks/torch_compile.py --part speed        ms of a call, eager, inductor and ours in turns

A line of JSON a model.
"""

import argparse
import copy
import json
import statistics
import subprocess
import sys
import time
import warnings

import torch
import transformers as hf

import tilewright.torch as ours

warnings.simplefilter("ignore")
BODY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {"vocab_size": 99, **BODY}
IMAGE = {"image_size": 32, "patch_size": 8, **BODY}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def words(batch=2, length=12):
    return {"input_ids": torch.randint(0, 99, (batch, length))}


def images(batch=2):
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


def both(batch=2, length=12):
    return {**words(batch, length), "decoder_input_ids": torch.randint(0, 99, (batch, 7))}


LESS = {"num_key_value_heads": 2, "use_cache": False}


def plain(name, config, given):
    """A model of transformers by its name, and arguments of it for a batch."""
    return lambda: getattr(hf, f"{name}Model")(getattr(hf, f"{name}Config")(**config)), given


GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
#: The model, and arguments of it for a batch: ten of text, ten of vision.
MODELS = {
    "bert": plain("Bert", {**TEXT, **STILL}, words),
    "distilbert": plain(
        "DistilBert",
        {
            "vocab_size": 99,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 64,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        words,
    ),
    "gpt2": plain("GPT2", {"vocab_size": 99, **GPT, "use_cache": False}, words),
    "llama": plain("Llama", {**TEXT, **LESS}, words),
    "t5": plain(
        "T5",
        {
            "vocab_size": 99,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "dropout_rate": 0.0,
        },
        both,
    ),
    "roberta": plain("Roberta", {**TEXT, **STILL}, words),
    "albert": plain("Albert", {**TEXT, "embedding_size": 16, **STILL}, words),
    "electra": plain("Electra", {**TEXT, "embedding_size": 16, **STILL}, words),
    "opt": plain(
        "OPT",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "word_embed_proj_dim": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "dropout": 0.0,
            "use_cache": False,
        },
        words,
    ),
    "qwen2": plain("Qwen2", {**TEXT, **LESS}, words),
    "vit": plain("ViT", {**IMAGE, **STILL}, images),
    "swin": plain(
        "Swin",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
            "drop_path_rate": 0.0,
            **STILL,
        },
        images,
    ),
    "convnext": plain(
        "ConvNext",
        {
            "num_stages": 2,
            "hidden_sizes": [16, 32],
            "depths": [2, 2],
            "image_size": 32,
            "drop_path_rate": 0.0,
        },
        images,
    ),
    "resnet": plain(
        "ResNet",
        {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2], "layer_type": "basic"},
        images,
    ),
    "resnet18": plain(
        "ResNet",
        {
            "embedding_size": 64,
            "hidden_sizes": [64, 128, 256, 512],
            "depths": [2, 2, 2, 2],
            "layer_type": "basic",
        },
        lambda batch=2: {"pixel_values": torch.randn(batch, 3, 224, 224)},
    ),
    "deit": plain("DeiT", {**IMAGE, **STILL}, images),
    "beit": plain("Beit", {**IMAGE, "drop_path_rate": 0.0, **STILL}, images),
    "dinov2": plain("Dinov2", {**IMAGE, "drop_path_rate": 0.0, **STILL}, images),
    "mobilenet_v2": plain(
        "MobileNetV2", {"image_size": 32, "depth_multiplier": 0.25, "min_depth": 8}, images
    ),
    "regnet": plain(
        "RegNet",
        {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2], "groups_width": 8},
        images,
    ),
    "segformer": plain(
        "Segformer",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [16, 32],
            "patch_sizes": [3, 3],
            "strides": [2, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "drop_path_rate": 0.0,
            "classifier_dropout_prob": 0.0,
            **STILL,
        },
        images,
    ),
}


def compiled(model, **options):
    share = ours.Share()
    return torch.compile(model, backend=ours.backend_of(ours.Options(), share), **options), share


def gradients_of(model, run, given):
    model.zero_grad()
    out = run(**given).last_hidden_state
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)).sum().backward()
    return {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}


def gradients(model, given):
    """The worst parameter by what it errs of the largest gradient, for ours and for eager."""
    exact_model = copy.deepcopy(model.train()).double()
    wide = {name: x.double() if x.is_floating_point() else x for name, x in given(2).items()}
    exact = gradients_of(exact_model, exact_model, wide)
    narrow = {name: x.float() if x.is_floating_point() else x for name, x in wide.items()}
    run, share = compiled(model)
    scale = max(float(g.abs().max()) for g in exact.values())
    found = {"scale": scale, "share": str(share)}
    for name, each in (("eager", model), ("ours", run)):
        made = gradients_of(model, each, narrow)
        errors = {key: float((made[key] - g).abs().max()) / scale for key, g in exact.items()}
        worst = max(errors, key=errors.get)
        found[name] = {"worst": worst, "error": errors[worst]}
    return {**found, "share": str(share)}


def made_of(model, run, given):
    """Results, and in training gradients, in one dictionary."""
    if model.training:
        return gradients_of(model, run, given)
    with torch.no_grad():
        return {"result": run(**given).last_hidden_state.double()}


def equal(model, given):
    """The largest error as a share of the largest result (gradient), ours and eager's, against f64."""
    found = {}
    for training in (False, True):
        for dynamic in (False, True):
            model.train(training)
            torch._dynamo.reset()
            run, share = compiled(model, dynamic=dynamic)
            errors = {"ours": 0.0, "eager": 0.0}
            for batch in (2, 3) if dynamic else (2,):
                narrow = given(batch)
                wide = {name: x.double() if x.is_floating_point() else x for name, x in narrow.items()}
                # statistics of batch norms go on from the same state
                exact_model, other = copy.deepcopy(model).double(), copy.deepcopy(model)
                exact = made_of(exact_model, exact_model, wide)
                scale = max(float(each.abs().max()) for each in exact.values())
                for name, each, call in (("eager", other, other), ("ours", model, run)):
                    made = made_of(each, call, narrow)
                    apart = max(float((made[key] - g).abs().max()) for key, g in exact.items())
                    errors[name] = max(errors[name], apart / scale)
            name = ("train" if training else "eval") + (", open" if dynamic else "")
            found[name] = {key: float(f"{value:.1e}") for key, value in errors.items()}
            if share.eager:
                found[name]["share"] = str(share)
    return found


def losses_of(model, run, given, steps):
    # Adam divides by the size of gradients: those that are rounding alone would move weights as others do
    optimiser, losses = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = (run(**given).last_hidden_state - 0.5).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def training(model, given):
    """The largest relative difference of the losses of 100 steps."""
    other, arguments = copy.deepcopy(model.train()), given(2)
    run, share = compiled(model)
    found = losses_of(model, run, arguments, 100)
    eager = losses_of(other.train(), other, arguments, 100)
    apart = max(abs(a - b) / abs(b) for a, b in zip(found, eager, strict=True))
    return {"first": eager[0], "last": eager[-1], "apart": apart, "share": str(share)}


def sizes(model, given):
    """What is compiled for five batches, and the largest error."""
    run, share = compiled(model.eval(), dynamic=True)
    pieces, errors = [], []
    with torch.no_grad():
        for batch in (3, 2, 5, 9, 4):
            arguments = given(batch)
            out = run(**arguments).last_hidden_state
            errors.append(float((out - model(**arguments).last_hidden_state).abs().max()))
            pieces.append(share.pieces)
    return {"pieces": pieces, "error": max(errors), "share": str(share)}


def first(model, given):
    """Seconds to the first result, and those of processors."""
    run, _ = compiled(model.eval())
    clocks = {"seconds": time.perf_counter, "of processors": time.process_time}
    with torch.no_grad():
        start = {name: clock() for name, clock in clocks.items()}
        run(**given(2))
    return {name: round(clock() - start[name], 2) for name, clock in clocks.items()}


def speed(model, given):
    """Milliseconds of a call, the median of calls in turns."""
    runs, times = {"eager": model.eval(), "inductor": torch.compile(model), "ours": compiled(model)[0]}, {}
    arguments = given(4)
    with torch.no_grad():
        for _ in range(60):
            for name, run in runs.items():
                start = time.perf_counter()
                run(**arguments)
                times.setdefault(name, []).append(time.perf_counter() - start)
    return {name: round(1e3 * statistics.median(each[10:]), 3) for name, each in times.items()}


PARTS = {
    "equal": equal,
    "gradients": gradients,
    "training": training,
    "sizes": sizes,
    "first": first,
    "speed": speed,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, default="equal")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    options = parser.parse_args()
    for name in options.models:
        if options.part == "first" and len(options.models) > 1:
            subprocess.run([sys.executable, __file__, "--part", "first", "--models", name], check=True)
            continue
        torch._dynamo.reset()
        torch.manual_seed(0)
        made, given = MODELS[name]
        print(
            json.dumps({"model": name, "part": options.part, **PARTS[options.part](made(), given)}),
            flush=True,
        )


if __name__ == "__main__":
    main()
