"""transformers' DeepSeek-V4 beside ours: a small random model of it, and its weights as ours."""

from dataclasses import replace

import torch

from capturebook.subjects.decode_step.ends import Ends
from capturebook.subjects.decode_step.shapes import SIZES, Shape

LAYERS = ("swa", "csa", "hca")
TYPES = {
    "swa": "sliding_attention",
    "csa": "compressed_sparse_attention",
    "hca": "heavily_compressed_attention",
}
HASHED = 1
"""Layers, from the first, that route by token."""

SHAPE = Shape(
    hidden=96,
    heads=8,
    head_dim=64,
    rope=8,
    q_rank=48,
    groups=2,
    o_rank=24,
    window=32,
    index_heads=12,
    index_dim=32,
    topk=6,
    experts=8,
    active=2,
    width=40,
    vocabulary=64,
    extended=(16.0, 64),
)
"""Sizes that differ from one another, a window that wraps, fewer keys chosen than there are, yarn within the steps."""

OPERATORS = replace(SIZES["small"], heads=8, groups=2, q_rank=96, width=128, extended=(16.0, 64))
"""The same with what the operators fix: 512 values a head, 64 heads x 128 in the indexer."""


FP32 = ("attn_hc", "ffn_hc", "hc_head", "sinks", "position_bias", "norm")
"""Parts of the names of what stays in fp32 in a bf16 model."""


def model_of(shape: Shape, rounded: bool = False, seed: int = 0):
    """transformers' model, in fp32, with every parameter random: its own initialisation leaves many at 0 or 1.

    rounded: the values are those that a bf16 model has, and each layer's input is rounded to bf16 too.
    """
    from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

    factor, trained = shape.extended
    config = DeepseekV4Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        moe_intermediate_size=shape.width,
        num_hidden_layers=len(LAYERS),
        num_attention_heads=shape.heads,
        head_dim=shape.head_dim,
        partial_rotary_factor=shape.rope / shape.head_dim,
        q_lora_rank=shape.q_rank,
        num_experts_per_tok=shape.active,
        n_routed_experts=shape.experts,
        layer_types=[TYPES[kind] for kind in LAYERS],
        mlp_layer_types=["hash_moe"] * HASHED + ["moe"] * (len(LAYERS) - HASHED),
        sliding_window=shape.window,
        o_groups=shape.groups,
        o_lora_rank=shape.o_rank,
        index_n_heads=shape.index_heads,
        index_head_dim=shape.index_dim,
        index_topk=shape.topk,
        swiglu_limit=shape.limit,
        rope_parameters={"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained},
        max_position_embeddings=int(factor) * trained,
    )
    torch.manual_seed(seed)
    model = DeepseekV4ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_()
            if parameter.dim() > 1 and not name.endswith("position_bias"):
                parameter *= parameter.shape[-1] ** -0.5
            elif name.endswith("norm.weight") or name.endswith("layernorm.weight"):
                parameter.mul_(0.1).add_(1)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_()
            elif name.endswith("tid2eid"):
                buffer.copy_(torch.rand(len(buffer), shape.experts).topk(shape.active, dim=1).indices)
        if rounded:
            for name, parameter in model.named_parameters():
                if not any(part in name for part in FP32):
                    parameter.copy_(parameter.bfloat16())
            for layer in model.model.layers:
                layer.register_forward_pre_hook(lambda _, args: (args[0].bfloat16().float(), *args[1:]))
    return model


def weights_of(layer, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """One decoder layer's parameters under our names, those of its matmuls in `dtype`."""
    attention, moe = layer.self_attn, layer.mlp
    groups = attention.o_a_proj.n_groups
    found = {
        "qkv_a": torch.cat((attention.q_a_proj.weight, attention.kv_proj.weight)),
        "q_norm": attention.q_a_norm.weight,
        "kv_norm": attention.kv_norm.weight,
        "q_b": attention.q_b_proj.weight,
        "sink": attention.sinks,
        "o_a": attention.o_a_proj.weight.unflatten(0, (groups, -1)),
        "o_b": attention.o_b_proj.weight,
        "router": moe.gate.weight,
        "experts.up": moe.experts.gate_up_proj,
        "experts.down": moe.experts.down_proj,
        "shared.up": torch.cat((moe.shared_experts.gate_proj.weight, moe.shared_experts.up_proj.weight)),
        "shared.down": moe.shared_experts.down_proj.weight,
        "attention.norm": layer.input_layernorm.weight,
        "ffn.norm": layer.post_attention_layernorm.weight,
    }
    for site, module in (("attention", layer.attn_hc), ("ffn", layer.ffn_hc)):
        found |= {f"{site}.mix": module.fn, f"{site}.mix_scale": module.scale, f"{site}.mix_base": module.base}
    if moe.is_hash:
        found["router.table"] = moe.gate.tid2eid.int()
    else:
        found["router.bias"] = moe.gate.e_score_correction_bias
    compressor = attention.compressor
    if compressor is not None:
        found |= _compressor("compress", compressor)
    indexer = getattr(compressor, "indexer", None)
    if indexer is not None:
        found |= _compressor("index.compress", indexer)
        found |= {"index.q": indexer.q_b_proj.weight, "index.weights": indexer.scorer.weights_proj.weight}
    fp32 = ("sink", "norm", "bias", "mix", "mix_scale", "mix_base", "table")
    return {name: value.detach() if name.endswith(fp32) else value.detach().to(dtype) for name, value in found.items()}


def ends_of(model) -> Ends:
    """What is before and behind the layers."""
    head = model.model.hc_head
    parts = (head.hc_fn, head.hc_scale, head.hc_base, model.model.norm.weight, model.lm_head.weight)
    return Ends(*(part.detach() for part in (model.model.embed_tokens.weight, *parts)))


def _compressor(name: str, module) -> dict[str, torch.Tensor]:
    return {
        name: torch.cat((module.kv_proj.weight, module.gate_proj.weight)),
        f"{name}.bias": module.position_bias,
        f"{name}.norm": module.kv_norm.weight,
    }


class Watched:
    """One decode step of the model at a time; of each layer, what went in and came out, what was chosen."""

    def __init__(self, model):
        from transformers import DynamicCache

        self.model, self.seen = model, [{} for _ in model.model.layers]
        self._cache = DynamicCache(config=model.config)
        for layer, seen in zip(model.model.layers, self.seen):
            layer.register_forward_pre_hook(lambda _, args, seen=seen: seen.update(streams=args[0][:, 0].clone()))
            layer.register_forward_hook(lambda _, args, out, seen=seen: seen.update(out=out[:, 0].clone()))
            layer.mlp.gate.register_forward_hook(lambda _, args, out, seen=seen: seen.update(experts=out[2].clone()))
            indexer = getattr(layer.self_attn.compressor, "indexer", None)
            if indexer is not None:
                indexer.register_forward_hook(lambda _, args, out, seen=seen: seen.update(chosen=out[:, 0].clone()))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [B, vocabulary] of the next token."""
        with torch.no_grad():
            return self.model(input_ids=tokens[:, None], past_key_values=self._cache, use_cache=True).logits[:, -1]
