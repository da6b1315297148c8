"""Models of transformers, tiny, with random weights, made offline from their configurations."""

from __future__ import annotations

from typing import Any

import torch

SMALL: dict[str, int] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 99, "max_position_embeddings": 64, "d_model": 32,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
    "n_positions": 64, "n_ctx": 64, "num_layers": 2, "num_heads": 4, "num_decoder_layers": 2,
    "d_kv": 8, "d_ff": 64, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4,
    "embedding_size": 32, "head_dim": 8, "ffn_dim": 64, "image_size": 32, "patch_size": 8,
    "num_experts": 4, "num_local_experts": 4, "moe_intermediate_size": 32, "n_inner": 64,
    "d_inner": 64, "rotary_dim": 4, "emb_dim": 32, "d_embed": 32, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0, "decoder_start_token_id": 1, "type_vocab_size": 2, "state_size": 8,
    "num_channels": 3, "word_embed_proj_dim": 32, "kv_channels": 8, "layers": 2, "attention_heads": 4,
    "decoder_hidden_size": 32, "decoder_intermediate_size": 64, "decoder_num_hidden_layers": 2,
    "decoder_num_attention_heads": 4, "num_encoder_blocks": 2, "projection_dim": 16,
    "feat_proj_dropout": 0, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
"""What a configuration is made small by, where it has such a number."""

MOST_PARAMETERS = 3_000_000


def tiny(model_type: str) -> tuple[torch.nn.Module, dict[str, Any]] | None:
    """A model of this type in evaluation, and inputs for it; None where this recipe makes none."""
    from transformers import AutoModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type]()
    for name, value in SMALL.items():
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, value)
    with torch.device("meta"):
        shapes = AutoModel.from_config(config)
    if sum(p.numel() for p in shapes.parameters()) > MOST_PARAMETERS:
        return None
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    return model, inputs_of(model, config)


def inputs_of(model: torch.nn.Module, config: Any) -> dict[str, Any]:
    """Inputs by the name of the main one."""
    torch.manual_seed(1)
    match model.main_input_name:
        case "pixel_values":
            return {"pixel_values": torch.randn(1, 3, *_image(config))}
        case "input_ids":
            ids = torch.randint(3, 90, (1, 12))
            given = {"input_ids": ids}
            if getattr(config, "is_encoder_decoder", False):
                given["decoder_input_ids"] = ids[:, :5]
            return given
        case "input_values":
            return {"input_values": torch.randn(1, 4000)}
    raise ValueError(f"no inputs are known for {model.main_input_name}")


def _image(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", 32)
    return (size, size) if isinstance(size, int) else tuple(size)
