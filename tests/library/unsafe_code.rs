//! The addresses of `unsafe`, which ARCHITECTURE.md explains, with how often each file has it.

use crate::doc_examples::rust_files;

/// All files with `unsafe` blocks, functions, implementations and attributes.
const ADDRESSES: &[(&str, usize)] = &[
    ("benches/tasks/gemm/peers.rs", 2),
    ("tensor/src/kernels/gemm/amx.rs", 15),
    ("tensor/src/kernels/gemm/blocked.rs", 1),
    ("tensor/src/kernels/gemm/fallback.rs", 1),
    ("tensor/src/kernels/gemm/micro_kernel.rs", 6),
    ("tensor/src/kernels/gemm/native.rs", 1),
    ("tensor/src/kernels/gemm/rows.rs", 3),
    ("tensor/src/kernels/gemm/skinny.rs", 8),
    ("tensor/src/matrix.rs", 3),
    ("tensor/src/simd/avx2.rs", 7),
    ("tensor/src/simd/avx512.rs", 6),
    ("tensor/src/simd/neon.rs", 6),
    ("tensor/src/simd/prefetch.rs", 2),
    ("tensor/src/simd/wasm128.rs", 2),
    ("tensor/src/simd/x86.rs", 1),
    ("tensor/src/storage.rs", 13),
    ("tensor/tests/all/common/guard.rs", 3),
    ("tensor/tests/pool.rs", 1),
    ("web/src/lib.rs", 3),
];

/// How often the keyword is in the code of a file; comments and quoted words do not count.
fn count(source: &str) -> usize {
    let code = source.lines().map(|line| line.split("//").next().unwrap());
    let is_part = |c: char| c.is_alphanumeric() || "_\"'`-".contains(c);
    code.flat_map(|line| line.split(|c| !is_part(c))).filter(|word| *word == "unsafe").count()
}

#[test]
fn unsafe_code_has_its_addresses() {
    let root = &retrograd_support::path("");
    let mut files = Vec::new();
    rust_files(root, &mut files);
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        found.push((name, count(&std::fs::read_to_string(&file).unwrap())));
    }
    found.retain(|(name, n)| *n > 0 && !name.ends_with("unsafe_code.rs"));
    found.sort();
    let found: Vec<_> = found.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    let other: Vec<_> = found.iter().filter(|file| !ADDRESSES.contains(file)).collect();
    assert!(
        found == ADDRESSES,
        "`unsafe` was added, removed or moved (now {other:?}): \
         write it in safe code, or change the list and say why in the commit"
    );
}

#[test]
fn comments_and_words_are_not_counted() {
    let source = "#![forbid(unsafe_code)] // unsafe {\nlet x = unsafe { f('unsafe-eval') };\n#[unsafe(no_mangle)]";
    assert_eq!(count(source), 2);
}
