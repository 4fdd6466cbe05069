//! Tensors without gradients: storage, views, strides, broadcasting.
//!
//! Run with `cargo run --release --example tensors`.

use retrograd::prelude::*;
use retrograd::tensor::storage::pool_stats;
use std::process::ExitCode;

fn main() -> ExitCode {
    retrograd::study::from_env();
    println!("A tensor is a storage (elements in memory) and a layout (shape, strides, offset).\n");
    let x = Tensor::<f32>::arange(0.0, 12.0, 1.0).reshape([3, 4]);
    show("x", &x);

    println!("Views share the storage; only the layout differs.\n");
    show("x.t(): strides exchanged", &x.t());
    show("x.slice(1, 1..3): an offset", &x.slice(1, 1..3));
    show("x.slice_step(1, .., 2): a larger stride", &x.slice_step(1, .., 2));
    show("x.flip(0): a negative stride", &x.flip(0));
    show("x.diagonal(0, 1, 0): both strides added", &x.diagonal(0, 1, 0));
    show("x.unfold(1, 2, 1): windows that overlap", &x.unfold(1, 2, 1));
    let row = x.select(0, 1);
    show("x.select(0, 1).broadcast_to([2, 4]): stride 0", &row.broadcast_to([2, 4]));

    println!(
        "reshape returns a view if the new layout can be expressed by strides, else a copy.\n"
    );
    for (name, y) in
        [("x.reshape([2, 6])", x.reshape([2, 6])), ("x.t().reshape([6, 2])", x.t().reshape([6, 2]))]
    {
        let how = if y.shares_storage(&x) { "a view" } else { "a copy" };
        println!("{name} is {how} with strides {:?}", y.layout().strides());
    }

    println!("\nBroadcasting aligns shapes at the last axis; axes of size 1 are repeated.\n");
    let column = Tensor::from([[10.0f32], [20.0], [30.0]]);
    println!("{} + {} =\n{}\n", x.shape(), column.shape(), &x + &column);

    println!("Shapes that do not broadcast are an error:\n");
    let error = Shape::broadcast("add", x.shape(), &Shape::from([3])).unwrap_err();
    println!("{error}\n");

    println!("Copy-on-write: a write to shared storage copies it first.\n");
    let mut y = x.clone();
    println!("a clone shares storage:      {}", y.shares_storage(&x));
    y.make_mut()[0] = 99.0;
    println!("after y.make_mut()[0] = 99:  {}", y.shares_storage(&x));
    println!("x[0, 0] is still             {}", x.at(&[0, 0]));

    println!("\nReductions, matrix multiplication, einsum:\n");
    println!("x.sum(0)        {}", x.sum(0));
    println!("x.mean(-1)      {}", x.mean(-1));
    println!("x.matmul(x.t()) \n{}", x.matmul(&x.t()));
    println!("einsum ij,ij->i {}", Tensor::einsum("ij,ij->i", &[&x, &x]));
    println!("x.softmax(-1)   \n{}", x.softmax(-1));

    println!("\nRandom numbers are functions of a key (seed and stream) and an index:\n");
    println!("{}", Tensor::<f32>::randn([2, 3], &mut Rng::new(42)));

    let before = pool_stats();
    for _ in 0..1000 {
        let _ = x.exp();
    }
    let after = pool_stats();
    println!(
        "\nMemory is recycled: 1000 calls of x.exp() allocated {} new blocks and reused {}.",
        after.fresh - before.fresh,
        after.reused - before.reused
    );
    ExitCode::SUCCESS
}

fn show(what: &str, x: &Tensor) {
    let (layout, indent) = (x.layout(), x.to_string().replace('\n', "\n    "));
    println!(
        "{what}\n    shape {:?}, strides {:?}, offset {}",
        x.shape(),
        layout.strides(),
        layout.offset()
    );
    println!("    {indent}\n");
}
