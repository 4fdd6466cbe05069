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

/// A row for a module and a closure of its forward pass on inputs of these shapes.
macro_rules! row {
    ($name:ident, [$($shape:expr),*], $build:expr, $run:expr) => {
        #[test]
        fn $name() {
            super::row(stringify!($name), $build, &[$(&$shape),*], $run);
        }
    };
}

row!(
    additive,
    [[2, 3, 3], [2, 4, 2], [2, 4, 3]],
    |r| AdditiveAttention::new(3, 2, 4, r),
    |m, x| m.forward(&x[0], &x[1], &x[2], Mask::lengths(&[4, 2]), &mut eval())
);

fn luong<S: LuongScore<f64>>(score: S, rng: &mut Rng) -> LuongAttention<f64, S> {
    LuongAttention::new(score, 3, 3, rng)
}
row!(luong_dot, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongDot, r), |m, x| m.forward(
    &x[0],
    &x[1],
    Mask::lengths(&[4, 2]),
    &mut eval()
));
row!(luong_general, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongGeneral::new(3, 3, r), r), |m, x| m
    .forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval()));
row!(luong_concat, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongConcat::new(3, 3, 4, r), r), |m, x| m
    .forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval()));
row!(luong_location, [[2, 3, 3], [2, 4, 3]], |r| luong(LuongLocation::new(3, 4, r), r), |m, x| m
    .forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval()));
row!(
    luong_local_m,
    [[2, 3, 3], [2, 5, 3]],
    |r| LuongLocalM::new(luong(LuongGeneral::new(3, 3, r), r), 1),
    |m, x| m.forward(&x[0], &x[1], Mask::full(), &mut eval())
);
row!(
    luong_local_p,
    [[2, 3, 3], [2, 6, 3]],
    |r| LuongLocalP::new(luong(LuongGeneral::new(3, 3, r), r), 3, 2, r),
    |m, x| m.forward(&x[0], &x[1], &[6, 4], &mut eval())
);

fn sparse(
    pattern: SparsePattern,
    merge: SparseMerge,
    r: &mut Rng,
) -> SparseTransformerAttention<f64> {
    SparseTransformerAttention::new(small(r), pattern, merge, 0)
}
const STRIDED: SparsePattern = SparsePattern::Strided { stride: 2 };
const FIXED: SparsePattern = SparsePattern::Fixed { stride: 2, summary: 1 };
row!(sparse_strided, [[2, 5, 4]], |r| sparse(STRIDED, SparseMerge::Heads, r), |m, x| m.forward(
    &x[0],
    Mask::full(),
    &mut eval()
));
row!(sparse_fixed, [[2, 5, 4]], |r| sparse(FIXED, SparseMerge::Heads, r), |m, x| m.forward(
    &x[0],
    Mask::full(),
    &mut eval()
));
row!(sparse_union, [[5, 4]], |r| sparse(FIXED, SparseMerge::Union, r), |m, x| m.forward(
    &x[0],
    Mask::full(),
    &mut eval()
));
row!(longformer, [[2, 6, 4]], |r| LongformerAttention::new(small(r), &[1, 2], 1), |m, x| m
    .forward(&x[0], &[1, 4], Mask::full(), &mut eval()));
row!(
    longformer_causal,
    [[6, 4]],
    |r| LongformerAttention::new(small(r), &[1, 1], 1).causal(),
    |m, x| m.forward(&x[0], &[0, 3], Mask::full(), &mut eval())
);

const BIG_BIRD: BigBirdLayout =
    BigBirdLayout { block: 2, neighbours: 0, global: 1, random: 1, seed: 4 };
row!(big_bird, [[2, 9, 4]], |r| BigBirdAttention::new(small(r), BIG_BIRD), |m, x| m.forward(
    &x[0],
    Mask::full(),
    &mut eval()
));
row!(prefix_lm, [[2, 5, 4]], |r| PrefixLmAttention::new(small(r)), |m, x| m.forward(
    &x[0],
    &[2, 4],
    Mask::full(),
    &mut eval()
));
row!(packed, [[6, 4]], |r| PackedAttention::new(small(r)), |m, x| m.forward(
    &x[0],
    &Packed::new(&[2, 4]),
    Mask::full(),
    &mut eval()
));
row!(shared_prefix, [[6, 4]], |r| PackedAttention::new(small(r)), |m, x| m.forward(
    &x[0],
    &Packed::shared_prefix(2, &[2, 2]),
    Mask::full(),
    &mut eval()
));
row!(chunked_local, [[2, 5, 4]], |r| ChunkedLocalAttention::new(small(r), 3), |m, x| m.forward(
    &x[0],
    Spec::new(),
    &mut eval()
));
row!(alibi, [[2, 4, 6]], |r| AlibiAttention::causal(of_three(r)), |m, x| m.forward(
    &x[0],
    Spec::new(),
    &mut eval()
));
row!(alibi_symmetric, [[2, 4, 6]], |r| AlibiAttention::symmetric(of_three(r)), |m, x| m.forward(
    &x[0],
    Spec::new(),
    &mut eval()
));

fn buckets(bidirectional: bool) -> Buckets {
    Buckets { count: if bidirectional { 4 } else { 3 }, max_distance: 4, bidirectional }
}
row!(t5_encoder, [[2, 5, 4]], |r| T5Attention::with_buckets(4, 2, buckets(true), r), |m, x| m
    .forward(&x[0], Spec::new(), &mut eval()));
row!(t5_decoder, [[2, 5, 4]], |r| T5Attention::with_buckets(4, 2, buckets(false), r), |m, x| m
    .forward(&x[0], Spec::new(), &mut eval()));
row!(shaw, [[2, 5, 4]], |r| ShawAttention::new(small(r), 2, r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(shaw_causal, [[5, 4]], |r| ShawAttention::new(small(r), 2, r), |m, x| m.attend(
    &x[0],
    Mask::causal() & Mask::window(2, 0),
    &mut eval()
));
row!(transformer_xl, [[2, 4, 4]], |r| TransformerXlAttention::new(small(r), r), |m, x| m.forward(
    &x[0],
    Some(&constant(&[2, 3, 4], 8)),
    Mask::full(),
    &mut eval()
));

fn linear(reach: Reach, form: LinearForm, r: &mut Rng) -> LinearAttention<f64> {
    LinearAttention::new(small(r), reach, form)
}
row!(linear_quadratic, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Quadratic, r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(linear_recurrent, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Recurrent, r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(linear_chunked, [[2, 5, 4]], |r| linear(Reach::Causal, LinearForm::Chunked(2), r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(linear_full, [[2, 5, 4]], |r| linear(Reach::Full, LinearForm::Chunked(2), r), |m, x| m
    .forward(&x[0], &mut eval()));

// Options of the projections.

row!(prefix_lm_rotated, [[2, 5, 4]], |r| PrefixLmAttention::new(rotated(r)), |m, x| m.forward(
    &x[0],
    &[2, 4],
    Mask::full(),
    &mut eval()
));
row!(packed_rotated, [[6, 4]], |r| PackedAttention::new(rotated(r)), |m, x| m.forward(
    &x[0],
    &Packed::shared_prefix(2, &[2, 2]),
    Mask::full(),
    &mut eval()
));
row!(longformer_rotated, [[6, 4]], |r| LongformerAttention::new(rotated(r), &[1, 2], 1), |m, x| m
    .forward(&x[0], &[0, 3], Mask::full(), &mut eval()));
row!(alibi_rotated, [[2, 4, 4]], |r| AlibiAttention::causal(rotated(r)), |m, x| m.forward(
    &x[0],
    Spec::new(),
    &mut eval()
));
row!(shaw_grouped, [[2, 5, 4]], |r| ShawAttention::new(grouped(r), 2, r), |m, x| m
    .forward(&x[0], &mut eval()));
row!(
    transformer_xl_grouped,
    [[2, 4, 4]],
    |r| TransformerXlAttention::new(grouped(r), r),
    |m, x| m.forward(&x[0], None, Mask::full(), &mut eval())
);
row!(
    linear_grouped,
    [[2, 5, 4]],
    |r| LinearAttention::new(grouped(r), Reach::Causal, LinearForm::Chunked(2)),
    |m, x| m.forward(&x[0], &mut eval())
);
