//! Matrix multiplication (GEMM): square matrices, the linear layers of two models in the forms NN,
//! NT and TN, skinny shapes, batches; and the same shapes with other crates.
//! `cargo bench -p retrograd-benches --bench gemm`.

mod common;

use common::group;

/// Tokens in a batch; inputs and outputs of the linear layers and of the head.
const MODELS: [(usize, [(usize, usize); 5]); 2] = [
    (768, [(128, 384), (128, 128), (128, 512), (512, 128), (128, 65)]),
    (16_384, [(384, 1152), (384, 384), (384, 1536), (1536, 384), (384, 65)]),
];

fn main() {
    common::main(|c| {
        let squares = [32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048];
        group(c, "square", squares.map(|n| format!("gemm nn {n} {n} {n}")));
        for (name, form) in [("forward", "nt"), ("input gradient", "nn"), ("weight gradient", "tn")]
        {
            let of = |rows, i, o| match form {
                "nt" => format!("gemm nt {rows} {i} {o}"),
                "nn" => format!("gemm nn {rows} {o} {i}"),
                _ => format!("gemm tn {o} {rows} {i}"),
            };
            let all = MODELS.iter().flat_map(|(n, l)| l.map(|(i, o)| of(*n, i, o)));
            group(c, name, all);
        }
        let skinny = [
            "nt 1 4096 4096",
            "nt 8 4096 4096",
            "nt 1 1536 384",
            "nt 4 1536 384",
            "tn 128 16384 128",
        ];
        group(c, "skinny", skinny.map(|x| format!("gemm {x}")));
        // Row strides of a power of two map to few sets of a cache; those 8 larger do not.
        let distances = [128, 256, 512, 1024, 2048, 4096].into_iter().flat_map(|d| {
            let k = d.min(512);
            [d, d + 8].map(|d| (format!("gemm nn 512 {k} {k}"), d, k + 24))
        });
        let left = distances.clone().map(|(product, d, other)| format!("{product} {d} {other}"));
        group(c, "row stride of A", left);
        let right = distances.map(|(product, d, other)| format!("{product} {other} {d}"));
        group(c, "row stride of B", right);
        let batched = [
            "nt 48 64 32 64",
            "nn 48 64 64 32",
            "nt 384 256 64 256",
            "nn 384 256 256 64",
            "nn 100000 3 3 3",
        ];
        group(c, "batched", batched.map(|x| format!("bmm {x}")));
        for peer in ["matrixmultiply", "gemm-avx2", "gemm-avx512"] {
            let squares = [128, 512, 2048].map(|n| format!("gemm@{peer} nn {n} {n} {n}"));
            let layers = ["nt 768 128 512", "nn 768 512 128", "tn 512 768 128"];
            let layers = layers.map(|x| format!("gemm@{peer} {x}"));
            group(c, peer, squares.into_iter().chain(layers));
        }
    });
}
