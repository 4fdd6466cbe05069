//! The page of a run from the lines of its files.

use crate::line::{Line, Step};
use crate::looks::{self, Memory, Start};
use crate::recipe::CLIP;
use retrograd::study::{Baselines, RunPage, RunStep};

/// The page of a run, from the lines of its files.
pub fn restored(title: &str, looks: &[looks::Line], log: &[Line]) -> RunPage {
    let mut starts: Vec<&Start> = looks
        .iter()
        .filter_map(|line| match line {
            looks::Line::Start(start) => Some(start),
            _ => None,
        })
        .collect();
    let mut page = RunPage::new(title).clip(CLIP);
    if let Some(&start) = starts.last() {
        let number = |name: &str| start.recipe.get(name).and_then(|x| x.as_u64()).unwrap_or(0);
        let base = (!start.preset.is_empty())
            .then(|| (&*start.preset, looks::fields(&start.preset_recipe)));
        page = page
            .planned(number("steps"), number("batch") * number("context"))
            .recipe(looks::fields(&start.recipe), base)
            .looks_at(
                start.sentence.clone(),
                &start.prompt,
                start.parts.clone(),
                start.layers.clone(),
            );
        if let Some([uniform, unigram, bigram]) = start.baselines {
            page = page.baselines(Baselines { uniform, unigram, bigram });
        }
        if let Some(flops) = start.flops {
            page = page.flops(flops);
        }
        for (name, text) in &start.facts {
            page.fact(name, text);
        }
    }
    starts.reverse();
    let memory = looks.iter().filter_map(|line| match line {
        looks::Line::Memory(memory) => Some(*memory),
        _ => None,
    });
    let mut memory = memory.peekable();
    for line in log {
        if let Line::Step(step) = line {
            while let Some(Memory { step, live, peak }) = memory.next_if(|m| m.step < step.step) {
                page.memory(step, live, peak);
            }
            // The machine may have been another one each time.
            while let Some(start) = starts.pop_if(|start| start.step < step.step) {
                start.peak.into_iter().for_each(|peak| page.peak(peak));
            }
        }
        add(&mut page, line);
    }
    for Memory { step, live, peak } in memory {
        page.memory(step, live, peak);
    }
    for start in starts.into_iter().rev() {
        start.peak.into_iter().for_each(|peak| page.peak(peak));
    }
    for line in looks {
        match line {
            looks::Line::Start(_) => {}
            looks::Line::Look(look) => page.look(look.clone()),
            looks::Line::Event(event) => page.event(event.step, &event.kind, &event.text),
            looks::Line::Memory(_) => {}
        }
    }
    page
}

/// Adds a line of the log.
pub fn add(page: &mut RunPage, line: &Line) {
    match line {
        Line::Step(Step { step, loss, lr, grad_norm, ms, .. }) => {
            page.step(RunStep {
                step: *step,
                loss: *loss,
                lr: *lr,
                grad_norm: *grad_norm,
                seconds: ms / 1e3,
            });
        }
        Line::Evaluation(evaluation) => page.evaluation(evaluation.step, evaluation.val_loss),
        Line::Done(done) => {
            let mut text = format!("{:.4}", done.val_loss);
            if let Some(metrics) = done.metrics {
                text += &format!(
                    "; {}, perplexity {:.4}, accuracy {:.2} %",
                    metrics.per_byte,
                    metrics.perplexity,
                    100.0 * metrics.accuracy
                );
            }
            page.fact("all held-out text", &text);
        }
    }
}
