//! Judges kept runs again, and prints what the judgement rests on: `cargo run -p wellfed-doctor --example judge -- DIR…`.
//!
//! For whoever changes the rules; `wellfed doctor report DIR` prints what users see.

use std::io::{self, Write};

use wellfed_doctor::{
    evidence::{Batch, Evidence, StageTime, Waits},
    report::Verdict,
    run_dir::RunDir,
    verdict,
};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for dir in std::env::args().skip(1) {
        let evidence = Evidence::of(&RunDir::read(dir.as_ref())?);
        writeln!(out, "== {dir}")?;
        measured(&mut out, &evidence)?;
        let judgement = verdict::judge(&evidence);
        if let Some(pipeline) = &judgement.pipeline {
            writeln!(
                out,
                "model: {:.5} s a step; {} workers, receive {:.5}, {:.2} neighbours, {:.1} cores that do the work of {:.2}",
                pipeline.time(),
                pipeline.workers,
                pipeline.receive,
                pipeline.neighbours,
                pipeline.cores,
                pipeline.scaling
            )?;
        }
        for cause in std::iter::once(&judgement.verdict).chain(&judgement.runner_up).chain(&judgement.others)
        {
            tell(&mut out, cause)?;
        }
    }
    Ok(())
}

/// Seconds of a step, of a batch, and of each stage, and the machine meanwhile.
fn measured(out: &mut impl Write, evidence: &Evidence) -> io::Result<()> {
    let (steps, loading) = (&evidence.steps, &evidence.loading);
    writeln!(
        out,
        "step: {:.5} s, waits {:.5}, computes {:.5}, epochs add {:.5}; {} steps",
        steps.time(),
        steps.wait(),
        steps.compute(),
        steps.restart(),
        steps.steps.len()
    )?;
    writeln!(
        out,
        "batch: {:.5} s, cpu {:.5} (process {:.5}), queued {:.5}, blocked {:.5}; {:.0} bytes ({:.0} from disk), {:.1} files; \
         sent in {:.5}, gap {:.5}, workers busy {:.2}; {} batches, {} samples, {} traced",
        loading.mean(|batch| batch.wall),
        loading.mean(|batch| batch.cpu),
        loading.mean(|batch| batch.process_cpu),
        loading.mean(|batch| batch.delay),
        loading.mean(Batch::blocked),
        loading.mean(|batch| batch.bytes),
        loading.mean(|batch| batch.disk_bytes),
        loading.mean(|batch| batch.opens),
        loading.send,
        loading.gap,
        loading.busy,
        loading.batches.len(),
        loading.samples.len(),
        evidence.stages.traced
    )?;
    for StageTime { name, cpu, blocked, culprits, waits } in
        evidence.stages.loading.iter().chain(&evidence.stages.looping)
    {
        let culprit =
            culprits.first().map(|culprit| format!("{} `{}`", culprit.frame.func, culprit.frame.call));
        writeln!(out, "  {name}: cpu {cpu:.5}, blocked {blocked:.5}  {}", culprit.unwrap_or_default())?;
        if *waits != Waits::default() {
            writeln!(out, "    {waits:?}")?;
        }
    }
    if let Some(requests) = evidence.engine.as_ref().and_then(|engine| engine.requests.as_ref()) {
        writeln!(out, "{requests:?}")?;
    }
    writeln!(out, "{:?}", evidence.load)
}

fn tell(out: &mut impl Write, cause: &Verdict) -> io::Result<()> {
    let gain = cause.gain.map(|gain| format!("{:.2} ({:.2}-{:.2})", gain.factor, gain.low, gain.high));
    writeln!(out, "* {} {} {}", cause.id, gain.unwrap_or_default(), cause.title)?;
    for fact in &cause.evidence {
        writeln!(out, "    - {}", fact.text)?;
    }
    if let Some(fix) = &cause.fix {
        writeln!(out, "    > {} | {}", fix.title, fix.change)?;
    }
    writeln!(out, "    ^ {}", cause.cap)
}
