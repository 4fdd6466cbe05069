//! A line per variant: what to see in its results. They are those of the whole run with seed 1, which
//! docs/ARENA.md has.

use retrograd::nn::AttentionKind;

/// What to see in the results of a variant.
pub fn note(kind: AttentionKind) -> &'static str {
    use AttentionKind::*;
    match kind {
        Causal => "the baseline: positions are easy to learn, looking up by content takes longer",
        MultiHead => {
            "the formula of causal with PyTorch's larger initial weights: induction is learned"
        }
        GroupedQuery => "half of the cache of causal",
        MultiQuery => "a quarter of the cache; text suffers a little",
        SingleHead => "one head finds the mark (induction), but text needs several",
        Wrapper => "multi-head attention once more, with a bias in the output projection",
        Plain => "without parameters a token attends to its like: it cannot look at another one",
        Renormalized => {
            "single-head but for rounding: renormalising equals masking before the softmax"
        }
        Additive => "induction is learned, text slowly; three times the time of dot products",
        Luong => {
            "values are not projected, and the output passes a tanh: copying works, looking up does not"
        }
        SparseStrided => "every key is two layers away: copying works, recall does not",
        SparseFixed => "blocks fit text and sorting better than copying at a distance",
        Longformer => "windows help text; keys beyond them are out of reach",
        BigBird => "as Longformer: good at text, and random blocks do not replace looking up",
        ChunkedLocal => "nothing passes between chunks: every task but text fails",
        Alibi => "distances instead of positions: all of recall and induction is learned",
        T5 => "the same by learned biases of distance",
        Shaw => "relative vectors: among the best at text",
        TransformerXl => "the best at text, and induction",
        Softcap => "causal: scores this small are not changed by a cap of 50",
        QkL2 => "cosines keep scores in range: text improves over causal",
        QkRms => "the same; induction is learned sooner",
        Sink => "a head may attend to nothing; nothing here needs that",
        Quiet => "as sink, without a parameter",
        Streaming => "sees the first tokens and a window: text works, copying fails beyond it",
        Memory => "learned keys cost time and help no task here",
        TalkingHeads => "mixing heads: induction begins to be learned",
        Differential => "noise is subtracted: induction is learned",
        Mla => {
            "a third of the cache, and rotary positions: better at text and induction than causal"
        }
        Linear => "a state of fixed size: copying works, text is worse than with a softmax",
        Gated => "gates help text a little",
        HeadScale => "nearly causal",
        ValueResidual => "values of the first layer pass on: induction is learned",
        Sigmoid => "weights do not compete: text is worse at this size",
        Sparsemax => "most weights are exactly 0; text improves over causal",
        Entmax15 => "between softmax and sparsemax, also in results",
        TopK => "eight keys are enough for these tasks",
    }
}
