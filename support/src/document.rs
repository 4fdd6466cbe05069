//! What is in the document of a page.

use serde_json::Value;

/// The part before the data of a document, the data, and the rest.
pub fn around_data(html: &str) -> (&str, &str, &str) {
    let start = html.find("id=\"data\">").expect("data") + "id=\"data\">".len();
    let end = start + html[start..].find("</script>").expect("the end of the data");
    (&html[..start], &html[start..end], &html[end..])
}

/// The data of a document.
pub fn data(html: &str) -> Value {
    serde_json::from_str(around_data(html).1).expect("JSON")
}

/// The numbers of a list.
pub fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

/// The bytes of a text in base64.
pub fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{c} is no digit"),
    };
    let (mut bytes, mut buffer, mut bits) = (Vec::with_capacity(text.len() * 3 / 4), 0u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        buffer = buffer << 6 | u32::from(digit(c));
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
        }
    }
    bytes
}
