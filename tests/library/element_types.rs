//! Tensors of every element type that PyTorch writes.

use retrograd::nn::checkpoint::{AnyTensor, Checkpoint};
use retrograd::tensor::DType;
use retrograd_support::fixture;

#[test]
fn every_element_type_of_pytorch_is_read() {
    let file = Checkpoint::load(fixture("dtypes.safetensors")).unwrap();
    assert!(file.unsupported.is_empty(), "{:?}", file.unsupported);
    let bits = |t: &AnyTensor| -> Vec<u64> {
        t.to_float::<f64>().unwrap().to_vec().into_iter().map(f64::to_bits).collect()
    };
    let floats = [
        ("float16", DType::F32),
        ("bfloat16", DType::F32),
        ("float32", DType::F32),
        ("float64", DType::F64),
    ];
    for (name, dtype) in floats {
        let (got, want) = (&file.tensors[name], &file.tensors[&format!("want.{name}")]);
        assert_eq!((got.dtype(), got.shape()), (dtype, want.shape()), "{name}");
        assert_eq!(bits(got), bits(want), "{name}");
    }
    for name in ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"] {
        let (got, want) = (&file.tensors[name], &file.tensors[&format!("want.{name}")]);
        let dtype = if name == "uint32" { DType::U32 } else { DType::I64 };
        assert_eq!((got.dtype(), got.shape()), (dtype, want.shape()), "{name}");
        assert_eq!(got.to_i64().unwrap(), want.to_i64().unwrap(), "{name}");
    }
    let bools = file.tensors["bool"].to_i64().unwrap();
    assert_eq!((file.tensors["bool"].dtype(), bools.to_vec()), (DType::Bool, vec![1, 0, 0, 1]));
    assert_eq!(file.tensors.len(), 2 * (4 + 8) + 1);
}
