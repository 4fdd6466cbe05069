//! Numbers as text.

/// A number with a comma before every three digits.
///
/// ```
/// assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1234567].map(retrograd::study::grouped)[..]);
/// ```
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let comma = |(i, c): (usize, char)| {
        let is_group = i > 0 && (digits.len() - i).is_multiple_of(3);
        is_group.then_some(',').into_iter().chain([c])
    };
    digits.chars().enumerate().flat_map(comma).collect()
}
