//! A graph of ONNX: nodes, inputs, outputs and constants.
//!
//! Numbers of fields are those of `onnx.proto`; operators are those of the opset [`OPSET`].

use super::wire::Message;
use crate::pretrained::weight_type::{BLOCK, WeightType, kind as kind_of};
use retrograd_tensor::Tensor;

/// The first opset with attention, RMS norm and rotary positions.
pub(super) const OPSET: i64 = 23;

/// The element types of tensors.
pub(super) mod element {
    pub const F32: i64 = 1;
    pub const I8: i64 = 3;
    pub const I64: i64 = 7;
    pub const F16: i64 = 10;
    pub const BF16: i64 = 16;
}

/// The numbers of the fields of a tensor and of a graph.
pub(super) mod field {
    pub const DIMS: u64 = 1;
    pub const TYPE: u64 = 2;
    pub const NAME: u64 = 8;
    pub const RAW: u64 = 9;
    pub const INITIALIZER: u64 = 5;
}

/// An attribute of a node.
pub(super) enum Attribute<'a> {
    Integer(&'a str, i64),
    Float(&'a str, f64),
    Text(&'a str, &'a str),
    Integers(&'a str, &'a [i64]),
}

/// The header of an initializer and its bytes.
pub(super) struct Initializer {
    pub name: String,
    pub dims: Vec<usize>,
    pub element: i64,
    pub bytes: Vec<u8>,
}

impl Initializer {
    pub(super) fn floats(name: &str, value: &Tensor<f32>) -> Initializer {
        let mut bytes = Vec::new();
        WeightType::F32.encode(value.contiguous().as_slice(), &mut bytes);
        let dims = value.shape().to_vec();
        Initializer { name: name.into(), dims, element: element::F32, bytes }
    }

    fn integers(name: String, values: &[i64], dims: &[usize]) -> Initializer {
        let bytes = values.iter().flat_map(|n| n.to_le_bytes()).collect();
        Initializer { name, dims: dims.to_vec(), element: element::I64, bytes }
    }

    /// The field of the graph, but for the elements at its end.
    pub(super) fn head(&self) -> Message {
        let mut tensor = Message::new();
        for &n in &self.dims {
            tensor = tensor.integer(field::DIMS, n as i64);
        }
        tensor = tensor.integer(field::TYPE, self.element).bytes(field::NAME, &self.name);
        tensor = tensor.begin(field::RAW, self.bytes.len());
        let length = tensor.0.len() + self.bytes.len();
        let head = Message::new().begin(field::INITIALIZER, length);
        Message([head.0, tensor.0].concat())
    }
}

/// A graph under construction.
#[derive(Default)]
pub(super) struct Graph {
    /// The fields of nodes.
    nodes: Vec<Message>,
    /// Constants that are no weights.
    pub constants: Vec<Initializer>,
    /// Inputs and outputs.
    ends: Message,
    /// The module that nodes belong to.
    pub scope: String,
}

impl Graph {
    /// Adds a node with one output, whose name it returns.
    pub(super) fn node(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[Attribute<'_>],
    ) -> String {
        let output = format!("{}/{op}_{}", self.scope, self.nodes.len());
        self.node_of(op, inputs, &[&output], attributes);
        output
    }

    /// Adds a node with outputs of these names.
    pub(super) fn node_of(
        &mut self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[Attribute<'_>],
    ) {
        let mut node = Message::new();
        for input in inputs {
            node = node.bytes(1, input);
        }
        for output in outputs {
            node = node.bytes(2, output);
        }
        node = node.bytes(3, outputs[0]).bytes(4, op);
        for attribute in attributes {
            // Its name, its value, and the number of its type.
            let attribute = match *attribute {
                Attribute::Float(name, x) => {
                    Message::new().bytes(1, name).float(2, x as f32).integer(20, 1)
                }
                Attribute::Integer(name, n) => {
                    Message::new().bytes(1, name).integer(3, n).integer(20, 2)
                }
                Attribute::Text(name, text) => {
                    Message::new().bytes(1, name).bytes(4, text).integer(20, 3)
                }
                Attribute::Integers(name, list) => {
                    let start = Message::new().bytes(1, name);
                    list.iter().fold(start, |m, &n| m.integer(8, n)).integer(20, 7)
                }
            };
            node = node.bytes(5, attribute);
        }
        self.nodes.push(node);
    }

    /// A constant of floats.
    pub(super) fn floats(&mut self, name: &str, value: &Tensor<f32>) -> String {
        self.constants.push(Initializer::floats(name, value));
        name.into()
    }

    /// A constant number.
    pub(super) fn float(&mut self, value: f64) -> String {
        let name = format!("constant_{}", self.constants.len());
        self.floats(&name, &Tensor::scalar(value as f32))
    }

    /// A constant list of integers.
    pub(super) fn integers(&mut self, values: &[i64]) -> String {
        let name = format!("constant_{}", self.constants.len());
        self.constants.push(Initializer::integers(name.clone(), values, &[values.len()]));
        name
    }

    /// A constant integer.
    pub(super) fn integer(&mut self, value: i64) -> String {
        let name = format!("constant_{}", self.constants.len());
        self.constants.push(Initializer::integers(name.clone(), &[value], &[]));
        name
    }

    pub(super) fn input(&mut self, name: &str, element: i64, dims: &[&str]) {
        self.end(11, name, element, dims);
    }

    pub(super) fn output(&mut self, name: &str, element: i64, dims: &[&str]) {
        self.end(12, name, element, dims);
    }

    /// An input or output; a size that is no number is a variable.
    fn end(&mut self, field: u64, name: &str, element: i64, dims: &[&str]) {
        let mut shape = Message::new();
        for dim in dims {
            let dim = match dim.parse() {
                Ok(n) => Message::new().integer(1, n),
                Err(_) => Message::new().bytes(2, dim),
            };
            shape = shape.bytes(1, dim);
        }
        let tensor = Message::new().integer(1, element).bytes(2, shape);
        let kind = Message::new().bytes(1, tensor);
        let end = Message::new().bytes(1, name).bytes(2, kind);
        self.ends = std::mem::take(&mut self.ends).bytes(field, end);
    }

    /// The fields of the graph without initializers.
    pub(super) fn fields(&self) -> Message {
        let mut graph = Message::new();
        for node in &self.nodes {
            graph = graph.bytes(1, node);
        }
        graph = graph.bytes(2, "retrograd");
        graph.0.extend(&self.ends.0);
        graph
    }

    /// The initializers of a weight, of which nodes make the weight.
    pub(super) fn weight(
        &mut self,
        name: &str,
        value: &Tensor<f32>,
        kind: WeightType,
    ) -> Vec<Initializer> {
        let value = value.contiguous();
        let (mut bytes, dims) = (Vec::new(), value.shape().to_vec());
        let kind = kind_of(name, &dims, kind);
        let stored = format!("{name}.{kind}");
        match kind {
            WeightType::F32 => vec![Initializer::floats(name, &value)],
            WeightType::F16 | WeightType::Bf16 => {
                kind.encode(value.as_slice(), &mut bytes);
                let to = [Attribute::Integer("to", element::F32)];
                self.node_of("Cast", &[&stored], &[name], &to);
                let element = if kind == WeightType::F16 { element::F16 } else { element::BF16 };
                vec![Initializer { name: stored, dims, element, bytes }]
            }
            WeightType::Q8_0 => {
                kind.encode(value.as_slice(), &mut bytes);
                let (mut factors, mut integers) = (Vec::new(), Vec::new());
                for [low, high, q @ ..] in bytes.as_chunks::<{ 2 + BLOCK }>().0 {
                    factors.extend([*low, *high]);
                    integers.extend(q);
                }
                let scale = format!("{stored}.scale");
                let to = [Attribute::Integer("to", element::F32)];
                let wide = self.node("Cast", &[&scale], &to);
                let axis =
                    [Attribute::Integer("axis", 1), Attribute::Integer("block_size", BLOCK as i64)];
                self.node_of("DequantizeLinear", &[&stored, &wide], &[name], &axis);
                let blocks = vec![dims[0], dims[1] / BLOCK];
                vec![
                    Initializer { name: stored, dims, element: element::I8, bytes: integers },
                    Initializer {
                        name: scale,
                        dims: blocks,
                        element: element::F16,
                        bytes: factors,
                    },
                ]
            }
        }
    }
}
