//! Matrix multiplication: recorded rates, and the blocks of the caches.

use super::svg::{Anchor, BLUE, GREEN, INK, ORANGE, PURPLE, Svg};

/// What `kernel_ladder` printed.
const RECORD: &str = include_str!("../../../docs/figures/kernel_ladder.txt");

/// A rung: its name, its rate in GFLOP/s, and its share of the limit in percent.
pub(crate) struct Rung {
    pub(crate) name: &'static str,
    pub(crate) rate: f64,
    pub(crate) share: f64,
}

/// The rungs of the recorded ladder.
pub(crate) fn record() -> Vec<Rung> {
    let header = |line: &&str| !line.contains("of limit");
    let lines =
        RECORD.lines().skip_while(header).skip(1).take_while(|line| !line.trim().is_empty());
    let rung = |line: &'static str| {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a name");
        let mut number = || -> f64 { words.next().expect("a number").parse().expect("a number") };
        let (rate, share) = (number(), number());
        Rung { name, rate, share }
    };
    lines.map(rung).collect()
}

/// The line of the record that begins with this.
fn line(start: &str) -> &'static str {
    RECORD.lines().find(|line| line.starts_with(start)).expect("in the record")
}

/// The recorded rates, on a logarithmic scale.
pub(crate) fn ladder() -> String {
    let rungs = record();
    let height = 92.0 + 26.0 * rungs.len() as f64;
    let mut svg =
        Svg::new(760.0, height, "Rates of nine matrix multiplications, from a naive loop on");
    svg.text((20.0, 20.0), Anchor::Start, line("matmul"));
    svg.styled(((20.0, 38.0), Anchor::Start), (11.5, INK), line("limit"));
    let (left, width) = (140.0, 420.0);
    let at = |rate: f64| left + width * (rate.max(0.1).log10() + 1.0) / 4.0;
    for tick in [0.1, 1.0, 10.0, 100.0, 1000.0] {
        svg.area((at(tick) - 0.5, 52.0), (1.0, height - 88.0), (INK, 0.25));
        svg.styled(((at(tick), height - 18.0), Anchor::Middle), (11.5, INK), tick);
    }
    svg.styled(((at(1000.0) + 30.0, height - 18.0), Anchor::Start), (11.5, INK), "GFLOP/s");
    for (i, rung) in rungs.iter().enumerate() {
        let y = 56.0 + 26.0 * i as f64;
        // The last two are libraries.
        let color = if i + 2 >= rungs.len() { GREEN } else { BLUE };
        svg.area((left, y), (at(rung.rate) - left, 18.0), (color, 0.7));
        svg.text((left - 8.0, y + 14.0), Anchor::End, rung.name);
        let label = format!("{} ({} % of the peak)", rung.rate, rung.share);
        svg.styled(((left + width + 8.0, y + 14.0), Anchor::Start), (12.0, INK), label);
    }
    svg.finish()
}

/// The blocks of a product that lie in each cache. The sizes are those of
/// `tensor/src/kernels/gemm/params.rs` for AVX-512, which is compared with them.
pub(crate) fn blocks() -> String {
    let (mr, nr, kc, mc, nc) =
        (size("MR"), 16 * size("NR_VECTORS_AVX512"), size("KC"), size("MC"), size("NC"));
    let kb = |elements: usize| format!("{} KB", elements * 4 / 1024);
    let mut svg =
        Svg::new(760.0, 400.0, "The blocks of a matrix product that stay in registers and caches");
    let panels = [
        ((30.0, 120.0), (170.0, 220.0), "A", (30.0, 150.0), (60.0, 70.0)),
        ((290.0, 120.0), (220.0, 220.0), "B", (290.0, 120.0), (110.0, 60.0)),
        ((570.0, 120.0), (170.0, 220.0), "C", (570.0, 150.0), (85.0, 70.0)),
    ];
    for ((corner, size, name, block, block_size), color) in
        panels.into_iter().zip([BLUE, ORANGE, GREEN])
    {
        svg.rect(corner, size, (INK, 0.04));
        svg.rect(block, block_size, (color, 0.3));
        svg.styled(
            ((corner.0 + size.0 / 2.0, corner.1 + size.1 - 14.0), Anchor::Middle),
            (18.0, INK),
            name,
        );
    }
    // The panels of the micro-kernel.
    svg.rect((30.0, 164.0), (60.0, 12.0), (BLUE, 0.8));
    svg.rect((318.0, 120.0), (24.0, 60.0), (ORANGE, 0.8));
    svg.rect((592.0, 164.0), (24.0, 12.0), (PURPLE, 0.9));
    svg.text((240.0, 230.0), Anchor::Middle, "·");
    svg.text((540.0, 230.0), Anchor::Middle, "=");
    let note = |svg: &mut Svg, x: f64, y: f64, text: String| {
        svg.styled(((x, y), Anchor::Start), (12.0, INK), text)
    };
    note(&mut svg, 30.0, 30.0, format!("a block of A: MC × KC = {mc} × {kc},"));
    note(&mut svg, 30.0, 46.0, format!("{} in the L2 cache", kb(mc * kc)));
    note(&mut svg, 30.0, 72.0, format!("dark: MR = {mr} rows, read by"));
    note(&mut svg, 30.0, 88.0, "the micro-kernel".into());
    note(&mut svg, 290.0, 30.0, format!("a block of B: KC × NC = {kc} × {nc},"));
    note(&mut svg, 290.0, 46.0, format!("{}, packed", kb(kc * nc)));
    note(&mut svg, 290.0, 72.0, format!("dark: a panel of NR = {nr} columns,"));
    note(&mut svg, 290.0, 88.0, format!("{} in the L2 cache", kb(kc * nr)));
    note(&mut svg, 560.0, 30.0, format!("dark: a tile of {mr} × {nr}"));
    note(&mut svg, 560.0, 46.0, format!("in {} registers of AVX-512", mr * nr / 16));
    let loads = mr as f64 + nr as f64 / 16.0;
    let products = mr as f64 * nr as f64 / 16.0;
    let text = format!(
        "One step of the micro-kernel, for one k: {} loads of vectors of B, {mr} broadcasts of A, {products} FMAs: {:.1} FMAs per load",
        nr / 16,
        products / loads
    );
    note(&mut svg, 30.0, 376.0, text);
    svg.finish()
}

/// A constant of the library's GEMM, read from its source.
pub(crate) fn size(name: &str) -> usize {
    let source = retrograd_support::read("tensor/src/kernels/gemm/params.rs");
    let start = format!("pub(super) const {name}: usize = ");
    let line = source.lines().find_map(|line| line.strip_prefix(&start)).expect("a constant");
    line.trim_end_matches(';').parse().expect("a number")
}
