//! Which kernel computes a product.

use crate::precision::MatmulPrecision;
use std::fmt::{self, Display, Formatter};

/// The kernel that computes a product on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GemmKernel {
    /// None: M, N or K is 0.
    Nothing,
    /// A function of the crate matrixmultiply: `f64` on NEON.
    Matrixmultiply,
    /// A few rows times contiguous columns, without packing.
    Skinny,
    /// Portable code.
    Portable,
    /// Rows of the right operand added to a few rows of the product.
    Rows,
    /// The loops over cache blocks around a micro-kernel.
    Blocked {
        /// Rows and columns of a tile.
        tile: (usize, usize),
        /// Whether the left operand is read in place, else packed.
        a_in_place: bool,
        /// Whether the right operand is read in place, else packed. (The last columns, if they do not fill
        /// a vector, are always packed.)
        b_in_place: bool,
    },
    /// AMX tiles of `bf16`, in split precision.
    Amx(MatmulPrecision),
}

impl Display for GemmKernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let where_read = |in_place| if in_place { "in place" } else { "packed" };
        f.pad(&match self {
            GemmKernel::Nothing => "nothing".into(),
            GemmKernel::Matrixmultiply => "matrixmultiply".into(),
            GemmKernel::Skinny => "skinny".into(),
            GemmKernel::Portable => "portable".into(),
            GemmKernel::Rows => "rows".into(),
            GemmKernel::Blocked { tile: (rows, cols), a_in_place, b_in_place } => {
                let (a, b) = (where_read(*a_in_place), where_read(*b_in_place));
                format!("{rows}x{cols}, A {a}, B {b}")
            }
            GemmKernel::Amx(precision) => format!("AMX {precision}"),
        })
    }
}
