//! The page of a run from the lines of its files.

use crate::line::{Line, Step};
use crate::looks::{self, Memory, Start};
use crate::recipe::CLIP;
use retrograd::study::{Baselines, RunPage, RunStep};

/// The page of a run, from the lines of its files.
pub fn restored(title: &str, looks: &[looks::Line], log: &[Line]) -> RunPage {
    let last_start = looks.iter().rev().find_map(|line| match line {
        looks::Line::Start(start) => Some(start),
        _ => None,
    });
    let mut page = RunPage::new(title).clip(CLIP);
    if let Some(start) = last_start {
        page = described(page, start);
    }
    // What was seen after a step comes before the next one.
    let mut looks = looks.iter().peekable();
    for line in log {
        if let Line::Step(step) = line {
            while let Some(look) = looks.next_if(|look| look.step() < step.step) {
                add_look(&mut page, look);
            }
        }
        add(&mut page, line);
    }
    looks.for_each(|look| add_look(&mut page, look));
    page
}

/// The page with what is said of the run when it is started.
fn described(page: RunPage, start: &Start) -> RunPage {
    let number = |name: &str| start.recipe.get(name).and_then(|x| x.as_u64()).unwrap_or(0);
    let base =
        (!start.preset.is_empty()).then(|| (&*start.preset, looks::fields(&start.preset_recipe)));
    let Start { sentence, prompt, parts, layers, .. } = start.clone();
    let mut page = page
        .planned(number("steps"), number("batch") * number("context"))
        .recipe(looks::fields(&start.recipe), base)
        .looks_at(sentence, &prompt, parts, layers);
    if let Some([uniform, unigram, bigram]) = start.baselines {
        page = page.baselines(Baselines { uniform, unigram, bigram });
    }
    if let Some(flops) = start.flops {
        page = page.flops(flops);
    }
    for (name, text) in &start.facts {
        page.fact(name, text);
    }
    page
}

/// Adds a line of the looks.
pub fn add_look(page: &mut RunPage, line: &looks::Line) {
    match line {
        // The machine may be another one each time.
        looks::Line::Start(start) => start.peak.into_iter().for_each(|peak| page.peak(peak)),
        looks::Line::Look(look) => page.look(look.clone()),
        looks::Line::Event(event) => page.event(event.step, &event.kind, &event.text),
        looks::Line::Memory(Memory { step, live, peak }) => page.memory(*step, *live, *peak),
    }
}

/// Adds a line of the log.
pub fn add(page: &mut RunPage, line: &Line) {
    match line {
        &Line::Step(Step { step, loss, lr, grad_norm, ms, .. }) => {
            page.step(RunStep { step, loss, lr, grad_norm, seconds: ms / 1e3 });
        }
        Line::Evaluation(evaluation) => page.evaluation(evaluation.step, evaluation.val_loss),
        Line::Done(done) => {
            let mut text = format!("{:.4}", done.val_loss);
            if let Some(metrics) = done.metrics {
                text += &format!("; {metrics}");
            }
            page.fact("all held-out text", &text);
        }
    }
}
