//! The parameters of a model, before there is one: a wrong configuration may need more memory than there is.

use crate::checkpoint::Storable;
use crate::gpt::{GptConfig, NormKind, Positions};
use crate::state::{LoadError, StateDict};
use retrograd_tensor::Shape;
use std::collections::BTreeMap;

/// The weight of the head, which a file may lack if it is tied.
pub(super) const HEAD: &str = "lm_head.weight";

/// The sizes of parameters, by their names here.
pub(super) type Shapes = BTreeMap<String, Vec<usize>>;

/// The parameters of a model whose attention is causal, with or without groups of heads.
pub(super) fn shapes(c: &GptConfig) -> Shapes {
    let (width, hidden, head) = (c.width, c.hidden(), c.head_width());
    let (queries, keys) = (c.heads * head, c.key_heads() * head);
    let (names, block) = (c.names.model(), c.names.block());
    let mut shapes = Shapes::new();
    let mut add = |module: String, sizes: &[usize], bias: bool| {
        if bias {
            shapes.insert(format!("{module}.bias"), sizes[..1].to_vec());
        }
        shapes.insert(format!("{module}.weight"), sizes.to_vec());
    };
    let scope = names.scope;
    let norm_bias = c.bias && c.norm == NormKind::LayerNorm;
    let norms = c.norm != NormKind::None;
    add(format!("{scope}.{}", names.tokens), &[c.vocab, width], false);
    add(names.head.into(), &[c.vocab, width], false);
    if c.positions == Positions::Learned {
        add(format!("{scope}.{}", names.positions), &[c.context, width], false);
    }
    if norms {
        add(format!("{scope}.{}", names.norm), &[width], norm_bias);
    }
    for i in 0..c.layers {
        let attention = match c.is_fused(i) {
            true => &[("c_attn", 3 * width, width), ("c_proj", width, width)][..],
            false => &[
                ("q_proj", queries, width),
                ("k_proj", keys, width),
                ("v_proj", keys, width),
                ("o_proj", width, queries),
            ],
        };
        let mlp = match c.mlp.is_gated() {
            true => &[
                ("gate_proj", hidden, width),
                ("up_proj", hidden, width),
                ("down_proj", width, hidden),
            ][..],
            false => &[("c_fc", hidden, width), ("c_proj", width, hidden)],
        };
        let at = format!("{scope}.{}.{i}", names.blocks);
        for (part, layers) in [(block.attention, attention), (block.mlp, mlp)] {
            for &(layer, outputs, inputs) in layers {
                add(format!("{at}.{part}.{layer}"), &[outputs, inputs], c.bias);
            }
        }
        if c.qk_norm {
            for norm in ["q_norm", "k_norm"] {
                add(format!("{at}.{}.{norm}", block.attention), &[head], false);
            }
        }
        if norms {
            for norm in [block.norm_1, block.norm_2] {
                add(format!("{at}.{norm}"), &[width], norm_bias);
            }
        }
    }
    shapes
}

/// The difference between the parameters of a configuration and a state dict.
pub(super) fn check<T: Storable>(c: &GptConfig, dict: &StateDict<T>) -> Result<(), LoadError> {
    let (shapes, mut error) = (shapes(c), LoadError::default());
    for (name, sizes) in &shapes {
        match dict.get(name) {
            Some(value) if value.shape()[..] != sizes[..] => {
                error.mismatched.push((name.clone(), Shape::from(&sizes[..]), *value.shape()));
            }
            None if !(c.tied && name == HEAD) => error.missing.push(name.clone()),
            _ => {}
        }
    }
    error.unexpected = dict.keys().filter(|name| !shapes.contains_key(*name)).cloned().collect();
    if error == LoadError::default() { Ok(()) } else { Err(error) }
}
