//! Text as tokens: tokenizers, corpora, batches, packed documents, and metrics that compare
//! tokenizers.
//!
//! | subject | items |
//! |---|---|
//! | text to tokens and back | [`Tokenizer`]: characters, bytes, and with the feature `tokenizers` BPE and `tokenizer.json` |
//! | printing while tokens are generated | [`DecodeStream`] |
//! | printing names and texts of files | [`Printable`] |
//! | a file or a folder | [`Documents`] |
//! | a training part and a held-out part | [`Corpus`], whose batches are a function of (seed, step) |
//! | documents in rows of one length | [`PackedDocuments`] |
//! | loss, bits per byte, perplexity, accuracy | [`TextMetrics`] |
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let text = Documents::of("to be, or not to be: that is the question. ".repeat(20));
//! let tokenizer = Tokenizer::chars(text.texts());
//! let corpus = Corpus::new(&text, 0.1, &tokenizer).unwrap(); // the last tenth is held out
//!
//! let vocab = tokenizer.vocab_size();
//! let config = GptConfig { vocab, context: 8, layers: 1, heads: 2, width: 8, ..GptConfig::default() };
//! let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
//! let batch = corpus.batch(7, 0, 4, 8); // seed, step, sequences, context
//! let (loss, gradients) =
//!     model.loss_and_gradients(&batch.tokens, &batch.targets, &mut Pass::train_step(7, 0));
//! assert!(loss > 0.0 && !gradients.is_empty());
//!
//! let mut metrics = TextMetrics::default();
//! for window in corpus.windows(8) {
//!     let batch = window.batch();
//!     let logits = model.forward(&batch.tokens, &mut Pass::eval());
//!     metrics.add(logits.value(), &batch.targets, window.bytes);
//! }
//! assert_eq!(metrics.tokens, corpus.held_out().len() as u64 - 1);
//! assert!(corpus.lost_share() == 0.0 && metrics.bits_per_byte() > 0.0);
//! ```

mod char_vocabulary;
mod corpus;
mod decode_stream;
mod documents;
mod encoding;
mod error;
mod exported;
#[cfg(feature = "tokenizers")]
mod file_checks;
#[cfg(feature = "tokenizers")]
mod hugging_face;
mod metrics;
mod packed;
mod printable;
mod tokenizer;

pub use char_vocabulary::CharVocabulary;
pub use corpus::{Batch, Corpus, Window};
pub use decode_stream::DecodeStream;
pub use documents::{Document, Documents};
pub use encoding::{Encoding, SEPARATOR};
pub use error::TextError;
#[cfg(feature = "tokenizers")]
pub use hugging_face::HuggingFace;
pub use metrics::TextMetrics;
pub use packed::{PackedBatch, PackedDocuments};
pub use printable::Printable;
pub use tokenizer::Tokenizer;
