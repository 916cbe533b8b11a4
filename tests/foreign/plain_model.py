"""The model as a user who ports another implementation writes it: plain torch, nothing of the compiler's own model.

Ops over step state and paged caches have no torch spelling over packed rows, so the declared ones are called:
row_table,
take_row_table, take_rows, the attentions and window_commit, compress_pairs, entry_store, index_topk*, engram_hash,
engram_lookup and engram_gate (which ask the row table what the rows are), moe_experts (packed FP4 weights) and
greedy_token (which writes the slots' tokens). Everything else is torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OPS = torch.ops.dsv41c
SLOT, POSITION, TOKEN, FLAGS = 0, 1, 5, 7
IMAGE = 2


def nested(tensors: Mapping[str, Tensor]) -> nn.Module:
    root = nn.Module()
    for name, tensor in tensors.items():
        module: nn.Module = root
        *path, last = name.split(".")
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, nn.Module())
            module = getattr(module, part)
        module.register_buffer(last, tensor)
    return root


class PlainModel(nn.Module):
    """Weights by their checkpoint names, state as the compiler lists it. Methods are spellings to be replaced."""

    def __init__(self, config: Any, options: Any, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.config, self.options, self.dtype = config, options, options.torch_dtype
        self.weights, self.state = nested(weights), nested(state)

    def w(self, name: str) -> Tensor:
        return self.weights.get_buffer(name)

    def s(self, name: str) -> Tensor:
        return self.state.get_buffer(name)

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return (wide * weight.float()).to(x.dtype)

    def fp8(self, x: Tensor) -> Tensor:
        groups = x.float().unflatten(-1, (-1, 32))
        scale = torch.exp2(torch.ceil(torch.log2(groups.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0)))
        rounded = (groups / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn).float()
        return (rounded * scale).flatten(-2).to(x.dtype)

    def e2m1(self, magnitude: Tensor) -> Tensor:
        step = torch.exp2(torch.floor(torch.log2(magnitude.clamp(min=1.0)))) * 0.5
        return torch.round(magnitude / step) * step

    def fp4_index(self, x: Tensor) -> Tensor:
        groups = x.float().unflatten(-1, (-1, 32))
        size = groups.abs()
        scale = torch.exp2(torch.ceil(torch.log2(size.amax(-1, keepdim=True).clamp(min=6.0 * 2.0**-126) / 6.0)))
        return torch.copysign(self.e2m1(size / scale) * scale, groups).flatten(-2).to(x.dtype)

    def fp4_kv(self, x: Tensor) -> Tensor:
        groups = x.float().unflatten(-1, (-1, 16))
        size = groups.abs()
        scale = (size.amax(-1, keepdim=True) / 6.0).clamp(2.0**-9, 448.0).to(torch.float8_e4m3fn).float()
        value = self.e2m1((size / scale).clamp(max=6.0)) * scale
        return torch.copysign(value, groups).flatten(-2).to(x.dtype)

    def dequantized(self, name: str) -> Tensor:
        weight, scale = self.w(f"{name}.weight"), self.w(f"{name}.scale").float()
        blocks = scale.repeat_interleave(32, 0).repeat_interleave(32, 1)
        return weight.float() * blocks[:weight.shape[0], :weight.shape[1]]

    def linear(self, x: Tensor, name: str, dtype: torch.dtype | None = None) -> Tensor:
        return F.linear(x.float(), self.dequantized(name)).to(dtype or self.dtype)

    def plain_linear(self, x: Tensor, name: str, dtype: torch.dtype) -> Tensor:
        return F.linear(x.float(), self.w(name).float()).to(dtype)

    def grouped_linear(self, x: Tensor, name: str) -> Tensor:
        wide = self.dequantized(name).view(self.config.o_groups, -1, x.shape[-1])
        return torch.einsum("tgk,gnk->tgn", x.float(), wide).flatten(1).to(self.dtype)

    def rotary(self, x: Tensor, rows: Tensor, compressed: bool, ratio: int = 1, inverse: bool = False) -> Tensor:
        table = self.w("constants.rotary_compressed" if compressed else "constants.rotary_plain")
        position = rows[:, POSITION]
        if ratio > 1:
            position = position // ratio * ratio
        cos, sin = table[position].unbind(-1)
        if x.dim() == 3:
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        if inverse:
            sin = -sin
        width = 2 * table.shape[1]
        kept, turned = x[..., :-width], x[..., -width:].float()
        even, odd = turned[..., 0::2], turned[..., 1::2]
        out = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
        return torch.cat((kept, out.to(x.dtype)), -1) if kept.shape[-1] else out.to(x.dtype)

    def embed(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        count = self.config.hc_mult
        x = self.w("embed.weight")[rows[:, TOKEN]].to(self.dtype)
        alpha = F.pad(torch.ones(rows.shape[0], 1, device=x.device), (0, count - 1))
        return x.unsqueeze(1).expand(-1, count, -1).contiguous(), alpha

    def collapse(self, streams: Tensor, alpha: Tensor) -> Tensor:
        return (streams.float() * alpha.unsqueeze(-1)).sum(1).to(streams.dtype)

    def post(self, y: Tensor, streams: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
        mixed = torch.sum(gamma.unsqueeze(-1) * streams.float().unsqueeze(2), dim=1)
        return (beta.unsqueeze(-1) * y.float().unsqueeze(1) + mixed).to(streams.dtype)

    def mix(self, streams: Tensor, site: str) -> tuple[Tensor, Tensor, Tensor]:
        config, n = self.config, self.config.hc_mult
        scale, base = self.w(f"{site}_scale"), self.w(f"{site}_base")
        x = streams.flatten(1).float()
        mixes = F.linear(x, self.w(f"{site}_fn")) * torch.rsqrt(x.square().mean(-1, keepdim=True) + config.rms_norm_eps)
        alpha = torch.sigmoid(mixes[:, :n] * scale[0] + base[:n]) + config.hc_eps
        beta = 2 * torch.sigmoid(mixes[:, n:2 * n] * scale[1] + base[n:2 * n])
        gamma = (mixes[:, 2 * n:] * scale[2] + base[2 * n:]).view(-1, n, n).softmax(-1) + config.hc_eps
        return alpha, beta, self.sinkhorn(gamma)

    def sinkhorn(self, gamma: Tensor) -> Tensor:
        eps = self.config.hc_eps
        gamma = gamma / (gamma.sum(-2, keepdim=True) + eps)
        for _ in range(self.config.hc_sinkhorn_iters - 1):
            gamma = gamma / (gamma.sum(-1, keepdim=True) + eps)
            gamma = gamma / (gamma.sum(-2, keepdim=True) + eps)
        return gamma

    def gate(self, x: Tensor, name: str, rows: Tensor) -> tuple[Tensor, Tensor]:
        config = self.config
        scores = F.softplus(F.linear(x.float(), self.w(f"{name}.weight").float())).sqrt()
        is_image = ((rows[:, FLAGS] & IMAGE) != 0).unsqueeze(-1)
        keys = scores + torch.where(is_image, self.w(f"{name}.bias_vl"), self.w(f"{name}.bias"))
        chosen = keys.topk(config.num_experts_per_tok, dim=-1).indices
        weights = scores.gather(1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * config.routed_scaling_factor
        return chosen.to(torch.int32), weights

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        limit = self.config.swiglu_limit
        return (F.silu(gate.clamp(max=limit)) * up.clamp(min=-limit, max=limit)).to(self.dtype)

    def combine(self, routed: Tensor, shared: Tensor) -> Tensor:
        return (routed + shared).to(self.dtype)

    def moe(self, x: Tensor, name: str, rows: Tensor) -> Tensor:
        expert, weight = self.gate(x, f"{name}.gate", rows)
        x = self.fp8(x)
        experts = [self.w(f"{name}.experts.{w}.{part}") for w in ("w1", "w3", "w2") for part in ("weight", "scale")]
        routed = OPS.moe_experts(x, expert, weight, *experts, self.config.swiglu_limit, True)
        gate, up = (self.linear(x, f"{name}.shared_experts.{w}", torch.float32) for w in ("w1", "w3"))
        shared = self.linear(self.fp8(self.swiglu(gate, up)), f"{name}.shared_experts.w2", torch.float32)
        return self.combine(routed, shared)

    def compress(self, layer: int, x: Tensor, rows: Tensor) -> None:
        name, ratio = f"layers.{layer}.attn", self.config.ratio(layer)
        if ratio == 1:
            latent = self.plain_linear(x, f"{name}.compressor.wkv.weight", self.dtype)
        else:
            kv, gate = (self.plain_linear(x, f"{name}.compressor.{w}.weight", torch.float32) for w in ("wkv", "wgate"))
            latent = OPS.compress_pairs(kv, gate, rows, self.s(f"pair_{layer}"), self.dtype)
        latent = self.rms_norm(latent, self.w(f"{name}.compressor.norm.weight"))
        entry = self.fp4_kv(self.rotary(latent, rows, True, ratio))
        OPS.entry_store(entry, rows, self.s("page_table"), self.s(f"compressed_{layer}"), ratio)
        key = self.rms_norm(self.plain_linear(latent, f"{name}.indexer.wk.weight", self.dtype),
                            self.w(f"{name}.indexer.k_norm.weight"))
        key = self.fp4_index(self.rotary(key, rows, True, ratio))
        OPS.entry_store(key, rows, self.s("page_table"), self.s(f"index_key_{layer}"), ratio)

    def select(self, layer: int, x: Tensor, latent: Tensor, rows: Tensor, blocks: Tensor | None) -> Any:
        config, name = self.config, f"layers.{layer}.attn.indexer"
        heads, dim = config.index_n_heads, config.index_head_dim
        query = self.linear(latent, f"{name}.wq_b").view(-1, heads, dim)
        query = self.fp4_index(self.rotary(query, rows, True))
        weights = self.plain_linear(x, f"{name}.weights_proj.weight", torch.float32)
        scored = (query, weights, self.s(f"index_key_{config.kv_source(layer)}"), self.s("page_table"), rows)
        topk, ratio, scale, block = config.index_topk, config.ratio(layer), (heads * dim) ** -0.5, \
            config.candidate_block_size
        if layer == config.candidate_source_layer_id:
            return OPS.index_topk_blocks(*scored, topk, ratio, scale, block, config.candidate_topk_blocks)
        if blocks is not None:
            return OPS.index_topk_within(*scored, blocks, topk, ratio, scale, block), blocks
        return OPS.index_topk(*scored, topk, ratio, scale), None

    def attention(self, layer: int, x: Tensor, rows: Tensor, selection: Any) -> tuple[Tensor, Any]:
        config, name = self.config, f"layers.{layer}.attn"
        ratio, x8 = config.ratio(layer), self.fp8(x)
        heads, dim = config.num_attention_heads, config.head_dim
        latent = self.fp8(self.rms_norm(self.linear(x8, f"{name}.wq_a"), self.w(f"{name}.q_norm.weight")))
        q = self.rotary(self.linear(latent, f"{name}.wq_b").view(-1, heads, dim), rows, ratio > 0)
        kv = self.rms_norm(self.linear(x8, f"{name}.wkv"), self.w(f"{name}.kv_norm.weight"))
        kv = self.fp8(self.rotary(kv, rows, ratio > 0))
        if layer in config.kv_source_layer_ids and layer != config.decoder_start:
            self.compress(layer, x, rows)
        if layer in config.index_source_layer_ids:
            selection = self.select(layer, x, latent, rows, None if selection is None else selection[1])
        window, sink, scale = self.s(f"window_{layer}"), self.w(f"{name}.attn_sink"), dim ** -0.5
        if ratio == 0:
            o = OPS.window_attention(q, kv, window, sink, rows, config.sliding_window, scale)
        else:
            o = OPS.sparse_attention(q, kv, window, self.s(f"compressed_{config.kv_source(layer)}"),
                                     self.s("page_table"), selection[0], sink, rows, config.sliding_window, ratio,
                                     scale)
        OPS.window_commit(kv, rows, window)
        o = self.rotary(o, rows, ratio > 0, inverse=True)
        o = self.fp8(o.reshape(-1, config.o_groups, heads * dim // config.o_groups))
        return self.linear(self.fp8(self.grouped_linear(o, f"{name}.wo_a")), f"{name}.wo_b"), selection

    def engram(self, layer: int, streams: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
        name = f"layers.{layer}.engram"
        found = OPS.engram_lookup(ids, self.w(f"{name}.embed.weight"), self.w(f"{name}.embed.scale"),
                                  self.config.engram_layer_ids.index(layer), self.dtype)
        kv = self.linear(self.fp8(found), f"{name}.wkv")
        return OPS.engram_gate(streams, kv, self.w(f"{name}.q_weight"), self.w(f"{name}.k_weight"), rows,
                               self.config.rms_norm_eps)

    def layer(self, layer: int, streams: Tensor, alpha: Tensor, rows: Tensor, selection: Any) -> Any:
        name = f"layers.{layer}"
        x = self.rms_norm(self.collapse(streams, alpha), self.w(f"{name}.attn_norm.weight"))
        alpha, beta, gamma = self.mix(streams, f"{name}.hc_attn")
        y, selection = self.attention(layer, x, rows, selection)
        streams = self.post(y, streams, beta, gamma)
        x = self.rms_norm(self.collapse(streams, alpha), self.w(f"{name}.ffn_norm.weight"))
        alpha, beta, gamma = self.mix(streams, f"{name}.hc_ffn")
        return self.post(self.moe(x, f"{name}.ffn", rows), streams, beta, gamma), alpha, selection

    def forward(self, upload: Tensor, keep_rows: Tensor, logit_rows: Tensor) -> tuple[Tensor, Tensor]:
        config, slots = self.config, self.options.max_num_seqs
        rows = OPS.row_table(upload, self.s("slot_token"), self.s("slot_position"), self.s("page_table"),
                             self.s("replay_floor"), self.options.block_size)
        streams, alpha = self.embed(rows)
        ids = OPS.engram_hash(rows, *(self.w(f"constants.engram_{n}") for n in
                                      ("token_map", "multipliers", "moduli", "offsets")), self.s("token_ring"),
                              config.engram_pad_token_id)
        selection = None
        for layer in range(config.num_hidden_layers):
            if layer == config.decoder_start:
                x = self.rms_norm(self.collapse(streams, alpha), self.w(f"layers.{layer}.attn_norm.weight"))
                self.compress(layer, x, rows)
                rows = OPS.take_row_table(rows, keep_rows, slots, "suffix")
                streams, alpha = (OPS.take_rows(t, keep_rows, "suffix") for t in (streams, alpha))
            if layer in config.engram_layer_ids:
                streams = self.engram(layer, streams, ids, rows)
            streams, alpha, selection = self.layer(layer, streams, alpha, rows, selection)
        hidden = self.rms_norm(self.collapse(streams, alpha), self.w("norm.weight"))
        rows = OPS.take_row_table(rows, logit_rows, slots, "logits")
        logits = self.plain_linear(OPS.take_rows(hidden, logit_rows, "logits"), "head.weight", torch.float32)
        return logits, OPS.greedy_token(logits, rows, self.s("slot_token"))
