//! Printing, against PyTorch's output.

use retrograd_tensor::{Element, Tensor};

const CASES: &str = include_str!("../../../tests/fixtures/prints.txt");

/// The text of a tensor whose data is given as in the fixture, with a precision if there is one.
fn print<T: Element>(
    shape: &[usize],
    digits: Option<usize>,
    data: &str,
    parse: impl Fn(&str) -> T,
) -> String {
    let words: Vec<&str> = data.split_whitespace().collect();
    let values = match words[..] {
        ["arange", n] => (0..n.parse().unwrap()).map(|i: u32| parse(&i.to_string())).collect(),
        ["arange", n, "*", step] => {
            let step: f64 = step.parse().unwrap();
            let value = |i: u32| parse(&(f64::from(i) * step).to_string());
            (0..n.parse().unwrap()).map(value).collect()
        }
        _ => words.iter().map(|word| parse(word)).collect(),
    };
    let x = Tensor::from_vec(values, shape);
    assert_eq!(format!("{x:?}"), format!("{x}"));
    assert_eq!(format!("{x:#}"), format!("{x}\n{} {shape:?}", T::DTYPE));
    // The text does not depend on the layout.
    if x.rank() > 1 {
        let transposed = Tensor::from_vec(x.transpose(0, -1).to_vec(), x.transpose(0, -1).shape());
        assert_eq!(transposed.transpose(0, -1).to_string(), x.to_string());
    }
    let Some(digits) = digits else { return x.to_string() };
    let text = format!("{x:.digits$}");
    assert_eq!(format!("{x:.digits$?}"), text);
    assert_eq!(format!("{x:#.digits$}"), format!("{text}\n{} {shape:?}", T::DTYPE));
    text
}

/// PyTorch's text with this library's names of element types.
fn with_own_type_names(text: &str) -> String {
    let names = [("float64", "f64"), ("uint32", "u32"), ("int64", "i64"), ("bool", "bool")];
    names
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(&format!("torch.{from}"), to))
}

#[test]
fn prints_as_pytorch_does() {
    let mut count = 0;
    for case in CASES.split("=== ").filter(|case| !case.is_empty()) {
        let (header, expected) = case.split_once('\n').unwrap();
        let (head, data) = header.split_once(':').unwrap();
        let head: Vec<&str> = head.split_whitespace().collect();
        let sizes = head[2].trim_matches(['[', ']']).split(',').filter(|s| !s.is_empty());
        let shape: Vec<usize> = sizes.map(|s| s.parse().unwrap()).collect();
        let digits = head.get(3).map(|word| word.trim_start_matches('.').parse().unwrap());
        let text = match head[1] {
            "f32" => print::<f32>(&shape, digits, data, |x| x.parse().unwrap()),
            "f64" => print::<f64>(&shape, digits, data, |x| x.parse().unwrap()),
            "i64" => print::<i64>(&shape, digits, data, |x| x.parse().unwrap()),
            "u32" => print::<u32>(&shape, digits, data, |x| x.parse().unwrap()),
            "bool" => print::<bool>(&shape, digits, data, |x| x == "1"),
            other => panic!("{other}"),
        };
        let expected = with_own_type_names(expected.trim_end_matches('\n'));
        assert_eq!(text, expected, "{}", head[0]);
        count += 1;
    }
    assert_eq!(count, 83);
}
