//! The letters that stand for the inputs of an operation in its formula.

use retrograd_autograd::observe::formula;

/// A letter for each input, given by its number of axes; none where the formula does not tell.
pub(super) fn symbols(operation: &str, ranks: &[usize]) -> Vec<Option<&'static str>> {
    let letters = match (operation, ranks.len()) {
        ("attention", 1) => vec!["q, k, v"],
        ("attention", _) => vec!["q", "k", "v", "bias"],
        // Without a bias, the residual is next.
        ("linear", _) => optional(&["x", "w"], &[("b", "r")], ranks),
        ("feed_forward", _) => optional(&["x", "v"], &[("a", "w"), ("b", "r")], ranks),
        _ => {
            gradients(operation).filter(|letters| letters.len() >= ranks.len()).unwrap_or_default()
        }
    };
    (0..ranks.len()).map(|i| letters.get(i).copied()).collect()
}

/// The letters in the order of the gradients: `x` and `z` of `dx = g` and `dz = −g`.
fn gradients(operation: &str) -> Option<Vec<&'static str>> {
    let mut letters = Vec::new();
    for line in formula(operation)?.backward.lines() {
        let (left, _) = line.split_once(['=', '[', '_', '+'])?;
        for name in left.split(", ") {
            letters.push(name.trim().strip_prefix('d')?);
        }
    }
    Some(letters)
}

/// Inputs some of which may be missing: the first of each pair, a vector, if it is there, and the second.
fn optional(
    first: &[&'static str],
    pairs: &[(&'static str, &'static str)],
    ranks: &[usize],
) -> Vec<&'static str> {
    let mut letters = first.to_vec();
    for (vector, other) in pairs {
        if ranks.get(letters.len()) == Some(&1) {
            letters.push(vector);
        }
        letters.push(other);
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_the_formula() {
        let cases: [(&str, &[usize], &str); 14] = [
            ("tanh", &[2], "x"),
            ("sub", &[2, 1], "x z"),
            ("embedding", &[2], "w"),
            ("gather", &[2], "x"),
            ("layer_norm", &[3, 1, 1], "x w b"),
            ("layer_norm", &[3], "x"),
            ("linear", &[3, 2], "x w"),
            ("linear", &[3, 2, 1], "x w b"),
            ("linear", &[3, 2, 3], "x w r"),
            ("linear", &[3, 2, 1, 3], "x w b r"),
            ("feed_forward", &[3, 2, 2, 3], "x v w r"),
            ("feed_forward", &[3, 2, 1, 2, 1, 3], "x v a w b r"),
            ("scatter_amax", &[2, 2], "x z"),
            ("attention", &[4, 4, 4], "q k v"),
        ];
        for (operation, ranks, wanted) in cases {
            let letters: Vec<&str> = symbols(operation, ranks).into_iter().flatten().collect();
            assert_eq!(letters.join(" "), wanted, "{operation} {ranks:?}");
            let forward = formula(operation).unwrap().forward;
            for letter in letters {
                let is_there =
                    forward.split(|c: char| !c.is_alphabetic() || c == 'ᵀ').any(|w| w == letter);
                assert!(is_there, "{operation}: {letter} is not in {forward}");
            }
        }
        assert_eq!(symbols("cat", &[2, 2]), [None, None]);
        assert_eq!(symbols("mine", &[2]), [None]);
    }
}
