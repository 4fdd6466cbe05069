//! Draws programs.

use super::language::{ALONG, BINARY, How, Program, REDUCE, UNARY};
use super::{condition, largest};
use retrograd::prelude::*;

/// Other operations, the fewest axes, and letters. Operands: of the same shape (`S`), of another size along the axis
/// (`C`), of the last axis (`L`), a right matrix (`M`), a weight (`W`) and its bias (`O`), keys (`K`), values (`V`), or
/// one that can be broadcast (`B`). Numbers: an axis (`a`), some (`*`), an axis or the end (`u`), an index (`i`), a size
/// (`n`), a slice (`s`), below 3 (`3`), from 1 (`+`), a permutation (`p`), sizes (`r`), expanded ones (`g`).
const OTHERS: &str = "masked_fill:0: where:0:S stack:0:Su unsqueeze:0:u reshape:0:r broadcast_to:0:g
    permute:1:p flip:1:* slice_step:1:as select:1:ai unfold:1:an+ pad:1:a33 gather:1:Ca scatter_add:1:Ca
    cat:1:Ca index_select:1:a+ matmul:1:M linear:1:WO linear_gelu:1:WO layer_norm:1:LL rms_norm:1:L
    attention:2:KV3";

/// All operations, with the fewest axes and letters.
pub fn operations() -> Vec<(&'static str, usize, &'static str)> {
    let twice = [(BINARY, 0, "B"); 2];
    let tables = [(UNARY, 0, ""), twice[0], twice[1], (REDUCE, 1, "*"), (ALONG, 1, "a")];
    let of =
        |(ops, n, letters): (&'static [&str], _, _)| ops.iter().map(move |&op| (op, n, letters));
    let other = |text: &'static str| {
        let (op, rest) = text.split_once(':').unwrap();
        (op, rest[..1].parse().unwrap(), &rest[2..])
    };
    tables.into_iter().flat_map(of).chain(OTHERS.split_whitespace().map(other)).collect()
}

/// The program with this seed. Large ones have tensors that are divided among threads.
pub fn draw(seed: u64, large: bool) -> Program {
    let mut rng = Rng::new(seed);
    loop {
        let mut program = Program { seed, ..Program::default() };
        let (rank, steps) = (rng.below(5), 2 + rng.below(9));
        program.inputs.push((0..rank).map(|_| size(&mut rng, large)).collect());
        for _ in 0..20 * steps {
            if program.steps.len() < steps && fits(&program.inputs[0], large) {
                program = step(program.clone(), &mut rng, large).unwrap_or(program);
            }
        }
        if program.steps.len() < steps {
            continue;
        }
        // No derivative is large, and none jumps nearby.
        let exact = program.outcome::<f64>(&How::default());
        let mut all = exact.iter().zip(condition(&program, &exact, 1e-5));
        if all.all(|(x, condition)| largest(x) < 1e4 && condition < 1e3 * largest(x)) {
            return program;
        }
    }
}

fn size(rng: &mut Rng, large: bool) -> usize {
    if large { [1, 3, 17, 64, 130, 259][rng.below(6)] } else { 1 + rng.below(5) }
}

fn fits(shape: &[usize], large: bool) -> bool {
    (1..=if large { 100_000 } else { 300 }).contains(&shape.iter().product::<usize>())
}

/// The program with one more step; `None` if what was drawn is not defined, or its result is large.
fn step(mut program: Program, rng: &mut Rng, large: bool) -> Option<Program> {
    let values = program.values::<f64>(&program.inputs(0), &How::default());
    let (inputs, at) = (program.inputs.len(), values.len() as isize);
    let shape_of = |program: &Program, i: isize| match i {
        0.. => values[i as usize].shape().to_vec(),
        _ => program.inputs[!i as usize].clone(),
    };
    // The last results are the likeliest.
    let any = |rng: &mut Rng| {
        let back = if rng.below(3) == 0 { values.len() + inputs } else { values.len().clamp(1, 3) };
        at - 1 - rng.below(back) as isize
    };
    let all = operations();
    let ((op, least, letters), a) = (all[rng.below(all.len())], any(rng));
    let shape = shape_of(&program, a);
    let (rank, last) = (shape.len(), shape.last().copied().unwrap_or(1));
    if !(least..=if op == "attention" { 4 } else { 5 }).contains(&rank) {
        return None;
    }
    let axis = rng.below(rank.max(1));
    let length = shape.get(axis).copied().unwrap_or(1);
    let (mut of, mut n) = (vec![a], vec![]);
    for letter in letters.chars() {
        let mut like = shape.clone();
        match letter {
            'a' => n.push(axis),
            '*' => n.extend((0..rank).filter(|&i| i == axis || rng.below(3) == 0)),
            'u' => n.push(rng.below(rank + 1)),
            'i' => n.push(rng.below(length)),
            'n' => n.push(1 + rng.below(length)),
            's' => {
                let start = rng.below(length);
                n.extend([start, start + 1 + rng.below(length - start), rng.below(4)]);
            }
            '3' => n.push(rng.below(3)),
            '+' => n.push(1 + rng.below(3)),
            'p' => {
                n.extend(0..rank);
                (1..rank).for_each(|i| n.swap(i, rng.below(i + 1)));
            }
            'r' => {
                let parts = 1 + rng.below(4);
                n.resize(parts, 1);
                shape.iter().for_each(|size| n[rng.below(parts)] *= size);
            }
            'g' => n.extend(shape.iter().map(|&size| if size == 1 { 3 } else { size })),
            'B' if rng.below(2) == 0 => {
                let i = any(rng);
                Shape::broadcast("", &shape[..].into(), &shape_of(&program, i)[..].into()).ok()?;
                of.push(i);
                continue;
            }
            'B' => like.iter_mut().for_each(|n| *n = if rng.below(3) == 0 { 1 } else { *n }),
            'C' => like[axis] = size(rng, large),
            'L' => like = vec![last],
            'M' => {
                like.truncate(rank.saturating_sub(2));
                like.extend([last, size(rng, large)]);
            }
            'W' => like = vec![size(rng, large), last],
            'O' => like = vec![shape_of(&program, of[1])[0]],
            'K' if rng.below(2) == 0 => like[rank - 2] = size(rng, large),
            'V' => like[rank - 2] = shape_of(&program, of[1])[rank - 2],
            _ => {}
        }
        if letter.is_uppercase() {
            // A known variable of this shape, or a new input.
            let mut known =
                (-(program.inputs.len() as isize)..at).filter(|&i| shape_of(&program, i) == like);
            of.push(known.next().filter(|_| rng.below(2) == 0).unwrap_or_else(|| {
                program.inputs.push(like);
                -(program.inputs.len() as isize)
            }));
        }
    }
    if !of.iter().all(|&i| fits(&shape_of(&program, i), large)) {
        return None;
    }
    // In the tiled path, the relative error of a weight is that of its score times its size.
    let x = program.inputs::<f64>(0);
    let operand = |i: isize| if i < 0 { &x[!i as usize] } else { &values[i as usize] };
    let scores = || operand(of[0]).matmul(&operand(of[1]).transpose(-1, -2)).into_value();
    if op == "attention" && scores().to_vec().iter().any(|score| score.abs() > 10.0) {
        return None;
    }
    program.steps.push((op.into(), of, n.into_iter().map(|n| n as isize).collect()));
    let y = program.values::<f64>(&program.inputs(0), &How::default()).pop()?.into_value();
    // The norm of zeros has no second derivative.
    let defined = |y: &f64| y.abs() <= 50.0 && (*y != 0.0 || !op.starts_with("norm"));
    (fits(y.shape(), large) && y.to_vec().iter().all(defined)).then_some(program)
}
