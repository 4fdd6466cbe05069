//! The classic variants.

use super::{grouped, small};
use crate::common::*;
use retrograd_nn::Layer;
use retrograd_nn::attention::*;
use retrograd_tensor::random::Rng;

fn of_three(rng: &mut Rng) -> Projections<f64> {
    Projections::new(HeadSizes::new(6, 3), rng)
}

/// One key head for two query heads, and half of each head rotated.
fn rotated(rng: &mut Rng) -> Projections<f64> {
    let sizes = HeadSizes::new(4, 2).key_heads(1).head_width(4);
    Projections::new(sizes, rng).with_rope(Rope::new(2))
}

fn sparse(
    pattern: SparsePattern,
    merge: SparseMerge,
    r: &mut Rng,
) -> SparseTransformerAttention<f64> {
    SparseTransformerAttention::new(small(r), pattern, merge, 0)
}
const STRIDED: SparsePattern = SparsePattern::Strided { stride: 2 };
const FIXED: SparsePattern = SparsePattern::Fixed { stride: 2, summary: 1 };
const BIG_BIRD: BigBirdLayout =
    BigBirdLayout { block: 2, neighbours: 0, global: 1, random: 1, seed: 4 };

fn buckets(bidirectional: bool) -> Buckets {
    Buckets { count: if bidirectional { 4 } else { 3 }, max_distance: 4, bidirectional }
}

rows! { |m, x| m.forward(&x[0], Mask::full(), &mut eval());
    sparse_strided, [[2, 5, 4]], |r| sparse(STRIDED, SparseMerge::Heads, r);
    sparse_fixed, [[2, 5, 4]], |r| sparse(FIXED, SparseMerge::Heads, r);
    sparse_union, [[5, 4]], |r| sparse(FIXED, SparseMerge::Union, r);
    big_bird, [[2, 9, 4]], |r| BigBirdAttention::new(small(r), BIG_BIRD);
    chunked_local, [[2, 5, 4]], |r| ChunkedLocalAttention::new(small(r), 3);
    alibi, [[2, 4, 6]], |r| AlibiAttention::causal(of_three(r));
    alibi_symmetric, [[2, 4, 6]], |r| AlibiAttention::symmetric(of_three(r));
    alibi_rotated, [[2, 4, 4]], |r| AlibiAttention::causal(rotated(r));
    slopes, [[2, 4, 4]], |r| ScoredAttention::new(grouped(r), LearnedSlopes::new(2));
    temperature, [[4, 4]], |r| ScoredAttention::new(small(r), LearnedTemperature::new(2));
    forget_gates, [[2, 4, 4]], |r| ScoredAttention::new(grouped(r), ForgetGates::new(4, 2, r));
    gaussian, [[2, 4, 4]], |r| {
        ScoredAttention::new(small(r), GaussianWindows::new(HeadSizes::new(4, 2), r))
    };
    cope, [[2, 4, 4]], |r| ScoredAttention::new(small(r), ContextualPositions::new(HeadSizes::new(4, 2), 3));
    t5_encoder, [[2, 5, 4]], |r| T5Attention::with_buckets(4, 2, buckets(true), r);
    t5_decoder, [[2, 5, 4]], |r| T5Attention::with_buckets(4, 2, buckets(false), r);
}

fn luong<S: LuongScore<f64>>(score: S, rng: &mut Rng) -> LuongAttention<f64, S> {
    LuongAttention::new(score, 3, 3, rng)
}

rows! { |m, x| m.forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval());
    luong_dot, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongDot, r);
    luong_general, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongGeneral::new(3, 3, r), r);
    luong_concat, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongConcat::new(3, 3, 4, r), r);
    luong_location, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongLocation::new(3, 4, r), r);
}
rows! { |m, x| m.forward(&x[0], &x[1], Mask::full(), &mut eval());
    luong_local_m, [[2, 3, 3], [2, 5, 3]], |r| {
        LuongLocalM::new(luong(LuongGeneral::new(3, 3, r), r), 1)
    };
}
rows! { |m, x| m.forward(&x[0], &x[1], &[6, 4], &mut eval());
    luong_local_p, [[2, 3, 3], [2, 6, 3]], |r| {
        LuongLocalP::new(luong(LuongGeneral::new(3, 3, r), r), 3, 2, r)
    };
}
rows! { |m, x| m.forward(&x[0], &x[1], &x[2], Mask::lengths(&[4, 2]), &mut eval());
    additive, [[2, 3, 3], [2, 4, 2], [2, 4, 3]], |r| AdditiveAttention::new(3, 2, 4, r);
}

rows! { |m, x| m.forward(&x[0], &[1, 4], Mask::full(), &mut eval());
    longformer, [[2, 6, 4]], |r| LongformerAttention::new(small(r), &[1, 2], 1);
}
rows! { |m, x| m.forward(&x[0], &[0, 3], Mask::full(), &mut eval());
    longformer_causal, [[6, 4]], |r| LongformerAttention::new(small(r), &[1, 1], 1).causal();
    longformer_rotated, [[6, 4]], |r| LongformerAttention::new(rotated(r), &[1, 2], 1);
}
rows! { |m, x| m.forward(&x[0], &[2, 4], Mask::full(), &mut eval());
    prefix_lm, [[2, 5, 4]], |r| PrefixLmAttention::new(small(r));
    prefix_lm_rotated, [[2, 5, 4]], |r| PrefixLmAttention::new(rotated(r));
}
rows! { |m, x| m.forward(&x[0], &Packed::new(&[2, 4]), Mask::full(), &mut eval());
    packed, [[6, 4]], |r| PackedAttention::new(small(r));
}
rows! { |m, x| m.forward(&x[0], &Packed::shared_prefix(2, &[2, 2]), Mask::full(), &mut eval());
    shared_prefix, [[6, 4]], |r| PackedAttention::new(small(r));
    packed_rotated, [[6, 4]], |r| PackedAttention::new(rotated(r));
}

rows! { |m, x| m.attend(&x[0], Mask::causal() & Mask::window(2, 0), &mut eval());
    shaw_causal, [[5, 4]], |r| ShawAttention::new(small(r), 2, r);
}
rows! { |m, x| m.forward(&x[0], Some(&constant(&[2, 3, 4], 8)), Mask::full(), &mut eval());
    transformer_xl, [[2, 4, 4]], |r| TransformerXlAttention::new(small(r), r);
}
rows! { |m, x| m.forward(&x[0], None, Mask::full(), &mut eval());
    transformer_xl_grouped, [[2, 4, 4]], |r| TransformerXlAttention::new(grouped(r), r);
}

fn linear(reach: Reach, form: LinearForm, p: Projections<f64>) -> LinearAttention<f64> {
    LinearAttention::new(p, reach, form)
}

rows! { |m, x| m.forward(&x[0], &mut eval());
    shaw, [[2, 5, 4]], |r| ShawAttention::new(small(r), 2, r);
    shaw_grouped, [[2, 5, 4]], |r| ShawAttention::new(grouped(r), 2, r);
    linear_quadratic, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Quadratic, small(r));
    linear_recurrent, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Recurrent, small(r));
    linear_chunked, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Chunked(2), small(r));
    linear_full, [[2, 5, 4]], |r| linear(Reach::Full, LinearForm::Chunked(2), small(r));
    linear_grouped, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Chunked(2), grouped(r));
}
