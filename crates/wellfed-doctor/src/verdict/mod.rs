//! From evidence to a verdict: every cause says what its fix would gain, by playing the pipeline without it.
//!
//! No cause has a threshold on a rate or a percentage of its own. A cause that gains less than [`WORTH`] is none; among the others the
//! one whose fix gains most is the verdict. Where a trial has measured what a fix gains, that counts, and not the promise.

mod again;
mod allocation;
mod code;
mod contention;
mod costs;
mod dataflow;
mod engine;
mod garbage;
mod launch;
mod left;
mod loading;
mod locks;
mod network;
mod pipeline;
mod remote;
mod storage;
#[cfg(test)]
mod tests;
mod training;
mod whole;

pub use loading::FED;
pub(crate) use loading::{most_workers, with_workers};

use std::cmp::Ordering;

use crate::{
    edit::Edit,
    evidence::{Evidence, FEWEST, Purpose},
    model::Pipeline,
    proved::Tried,
    record::Place,
    report::{Fact, Fix, Gain, Verdict},
};

/// The gain below which a change is not worth mentioning: what differs between two runs of the same thing.
pub const WORTH: f64 = 1.05;

/// Share of the time that a loop waits for data, copies it or logs, from which on that is no chance, and [`WORTH`] can be gained.
/// The planted healthy loops wait 1 to 4.5 %.
const HELD_UP: f64 = 0.06;

/// A gain in units of how unsure it is, from which on it is named beside sure ones: 1.28 is one chance in ten that it is none, and sure.
const LIKELY: f64 = 0.75;

/// How much more another change has to gain to come before a setting, as a difference of logarithms.
const FOR_NOTHING: f64 = 0.07;

/// The same before threads that fight for cores: until they stop, other work looks as if it took several times what it does.
const SPINNING: f64 = 1.0;

/// Gains that differ by less are the same, as a difference of logarithms.
const ALIKE: f64 = 0.02;

/// Upper over lower end of an interval from which on it says nothing: a factor of 3, say, would be one of 1 to 9.
const WIDEST: f64 = 9.0;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// The answer.
    pub verdict: Verdict,
    /// What would be next.
    pub runner_up: Option<Verdict>,
    /// The rest, most gain first.
    pub others: Vec<Verdict>,
    /// Seconds a step if data were always there.
    pub ceiling: f64,
    /// Pipeline as it was understood, if there was a loop.
    pub pipeline: Option<Pipeline>,
}

/// How a cause competes with others.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A setting or a neighbour: made right without touching what the script computes. Its gain is what is left to gain then.
    Setting,
    /// Work that takes long. Its gain says what it would be without.
    Work,
    /// Threads that fight for cores: what all other work takes is told too high, since it is done while they do.
    Spinning,
}

/// A cause that would gain something.
#[derive(Clone, Debug)]
struct Finding {
    verdict: Verdict,
    kind: Kind,
}

impl Finding {
    /// What it gains: as measured, where it was tried.
    fn factor(&self) -> f64 {
        let promised = self.verdict.gain.map_or(1.0, |gain| gain.factor);
        self.verdict.measured.map_or(promised, |measured| measured.factor)
    }

    /// Whether it gains something likely enough to be named where something else surely does.
    fn likely(&self) -> bool {
        self.sure() || self.certainty() >= LIKELY
    }

    /// Whether its interval says anything.
    fn told(&self) -> bool {
        self.verdict.gain.is_none_or(|gain| gain.high <= WIDEST * gain.low)
    }

    /// Whether it gains something more surely than not.
    fn sure(&self) -> bool {
        self.verdict.gain.is_none_or(|gain| gain.low > 1.0)
    }

    /// The gain in units of how unsure it is. Of gains that are alike, a setting's comes first.
    fn certainty(&self) -> f64 {
        let Some(gain) = self.verdict.gain else { return 0.0 };
        let ahead = if self.kind == Kind::Work { 0.0 } else { ALIKE };
        (gain.factor.ln() + ahead) / (gain.high / gain.factor).ln().max(1e-9)
    }

    /// The finding with a known form's lines as its fix.
    fn edited(mut self, edit: &Edit, title: String, why: &str) -> Self {
        let (first, more) = code::edited(edit);
        if let (Some(fix), Some(first)) = (&mut self.verdict.fix, first) {
            let code = first.code.clone();
            let call = Some([0, code.len()]);
            let place = Place { file: edit.file.clone(), line: first.line, code, call, wellfed: None };
            *fix = Fix { title, change: first.change, place: Some(place), why: why.to_owned(), apply: None };
            self.verdict.more = more;
        }
        self
    }

    /// What findings are ordered by: the gain, and of gains that are much the same, a setting's first: it is there for nothing.
    fn weight(&self) -> f64 {
        let ahead = match self.kind {
            Kind::Work => 0.0,
            Kind::Setting => FOR_NOTHING,
            Kind::Spinning => SPINNING,
        };
        self.factor().max(1.0).ln() + ahead
    }
}

/// What is said of a cause.
struct Said {
    title: String,
    facts: Vec<Fact>,
    fix: Fix,
}

impl Said {
    fn into_finding(self, kind: Kind, id: &str, family: &str, gain: Gain, cap: String) -> Finding {
        let verdict = Verdict {
            id: id.to_owned(),
            family: family.to_owned(),
            title: self.title,
            evidence: self.facts,
            fix: Some(self.fix),
            gain: Some(gain),
            cap,
            ..Verdict::default()
        };
        Finding { verdict, kind }
    }
}

/// A loop under examination.
struct Case<'a> {
    e: &'a Evidence,
    /// The loop as it is.
    p: Pipeline,
    /// Seconds a step that the model makes of it.
    now: f64,
    /// Seconds a step with data always there.
    ideal: f64,
    /// Natural logarithm of how far the model is off from what was measured.
    misfit: f64,
}

impl<'a> Case<'a> {
    fn of(e: &'a Evidence) -> Option<Self> {
        let p = pipeline::of(e)?;
        let now = mean_time(&p);
        let ideal = mean_time(&p.without_input()).min(now);
        let measured = e.steps.whole();
        let misfit = if now > 0.0 && measured > 0.0 { (measured / now).ln() } else { 0.0 };
        Some(Self { e, p, now, ideal, misfit })
    }

    /// Gain of a changed pipeline; `unsure` is the standard deviation of the logarithm of what the change itself does.
    fn gain(&self, changed: &Pipeline, unsure: f64) -> Gain {
        self.gain_of(mean_time(changed), unsure)
    }

    fn gain_of(&self, time: f64, unsure: f64) -> Gain {
        let factor = if time > 0.0 { self.now / time } else { 1.0 };
        // Two runs of the same script differ by a few percent; a model that is off by some is trusted less for it; the
        // farther a prediction goes, the less is known of what comes next.
        let far = 0.17 * factor.ln().abs();
        let deviation = (0.06f64.powi(2) + (0.4 * self.misfit).powi(2) + unsure.powi(2) + far.powi(2)).sqrt();
        // 80 % of a normal distribution lie within 1.2816 standard deviations.
        let (low, high) = ((-1.2816 * deviation).exp(), (1.2816 * deviation).exp());
        Gain { factor, low: factor * low, high: factor * high }
    }

    /// The same for a change that leaves cores idle which were busy: what the model misses of the loop as it is, is mostly what
    /// busy cores cost besides (caches that others fill, threads that are woken late), and ends with them.
    fn gain_of_idle_cores(&self, changed: &Pipeline, unsure: f64) -> Gain {
        let by = (self.misfit.max(0.0) * pipeline::busy_share(self.e)).exp();
        let gain = self.gain(changed, unsure);
        Gain { factor: gain.factor * by, low: gain.low * by, high: gain.high * by }
    }

    /// A cause, and what the loop would be without it; `unsure` as for [`Case::gain`].
    fn finding(
        &self,
        kind: Kind,
        id: &str,
        family: &str,
        said: Said,
        changed: &Pipeline,
        unsure: f64,
    ) -> Finding {
        said.into_finding(kind, id, family, self.gain(changed, unsure), self.cap(changed))
    }

    /// What limits the loop after a change: the next bottleneck, in words.
    fn cap(&self, changed: &Pipeline) -> String {
        let time = mean_time(changed);
        let alone = mean_time(&changed.without_input());
        let rate = self.e.batch_size() / time.max(1e-12);
        if alone >= 0.95 * time {
            format!("The step itself is the limit: {} a step, {rate:.0} samples/s.", ms(alone))
        } else if alone < 1e-3 * time {
            format!("Loading is still the limit, at {rate:.0} samples/s.")
        } else {
            format!(
                "Loading is still the limit, at {rate:.0} samples/s of the {:.0} that the step could take.",
                self.e.batch_size() / alone
            )
        }
    }
}

/// Mean over a few orders of events.
fn mean_time(p: &Pipeline) -> f64 {
    (0..4).map(|seed| p.time_of(seed)).sum::<f64>() / 4.0
}

/// Judges.
pub fn judge(e: &Evidence) -> Judgement {
    let Some(case) = Case::of(e) else {
        return Judgement { verdict: nothing_seen(e), ..Judgement::default() };
    };
    // A loop that waits so much is held up by something: then it is the size of a gain that is unsure, not whether there is one.
    let waits = e.steps.wait() + e.steps.restart() + e.stages.time("copy") + e.stages.time("log");
    let held_up = waits >= HELD_UP * e.steps.whole();
    let (mut findings, guessed) = own_causes(&case);
    settle(&mut findings, held_up);
    // Neighbours are told beside what is the script's own. That is what would be there without them, too.
    if let Some(neighbour) = contention::neighbour(&case).filter(|it| it.factor() >= WORTH && it.told()) {
        let alone = contention::without_neighbours(e);
        let mut own = Case::of(&alone).map(|alone| own_causes(&Case { misfit: case.misfit, ..alone }).0);
        if let Some(own) = &mut own {
            settle(own, held_up);
        }
        findings = beside(findings, own.unwrap_or_default(), neighbour, held_up);
    }
    let found = findings.len();
    proved(&mut findings, &e.tried);
    let refuted = findings.len() < found;
    learn(&mut findings);
    findings.extend(loading::fed_as_tried(&case, &findings));
    left::bound(&case, &mut findings);
    findings.extend(left::find(&case, &findings));
    if findings.iter().any(|finding| finding.verdict.measured.is_some() || finding.verdict.bound.is_some()) {
        // What was measured comes to its place, and what it bounds; a neighbour stays beside the first cause of the script's own.
        let others = |finding: &Finding| finding.verdict.id == contention::NEIGHBOUR;
        findings.sort_by(|a, b| {
            (others(a), b.weight()).partial_cmp(&(others(b), a.weight())).unwrap_or(Ordering::Equal)
        });
        if let Some(at) = findings.iter().position(others).filter(|&at| at > 1) {
            findings[1..=at].rotate_right(1);
        }
    }
    let mut verdicts = findings.into_iter().map(|finding| finding.verdict);
    let verdict = verdicts
        .next()
        .or_else(|| {
            // Where wellfed's loader gains nothing, either, it is not the loader that is waited for too long.
            let tried = fed_in_vain(e) && !guessed;
            training::unexplained(&case, guessed || refuted).filter(|_| !tried)
        })
        .unwrap_or_else(|| training::well_fed(&case));
    let runner_up = verdicts.next();
    let of_the_script = |verdict| of_the_script(e, verdict);
    Judgement {
        verdict: named(e, of_the_script(verdict)),
        runner_up: runner_up.map(of_the_script),
        others: verdicts.chain(training::device_memory(&case)).map(of_the_script).collect(),
        ceiling: case.ideal * case.misfit.exp(),
        pipeline: Some(case.p),
    }
}

/// Whether a trial showed that wellfed's loader gains nothing.
fn fed_in_vain(e: &Evidence) -> bool {
    e.tried.iter().any(|tried| tried.apply.feed && tried.refuted())
}

/// Causes in the script that would gain something, and whether there are some of which nobody could say how much.
fn own_causes(case: &Case) -> (Vec<Finding>, bool) {
    let again = again::find(case);
    // One file that is read again and again is more than one that is read whole.
    let whole = whole::find(case).filter(|_| again.iter().all(|finding| finding.verdict.id != "read-again"));
    let findings: Vec<Finding> = [
        loading::find(case),
        costs::find(case),
        storage::find(case),
        contention::find(case),
        allocation::find(case).into_iter().collect(),
        garbage::find(case),
        locks::find(case).into_iter().collect(),
        again,
        dataflow::find(case),
        engine::find(case),
        training::find(case),
        whole.into_iter().collect(),
    ]
    .into_iter()
    .flatten()
    .filter(|finding| finding.factor() >= WORTH)
    .collect();
    let all = findings.len();
    let told: Vec<Finding> = findings.into_iter().filter(Finding::told).collect();
    let guessed = told.len() < all;
    (told, guessed)
}

/// Keeps what may be said, the verdict first. Where any gain is sure, those that are not stay out of the way; else the surest is
/// named, if it is sure that the loop waits.
fn settle(findings: &mut Vec<Finding>, held_up: bool) {
    if findings.iter().any(Finding::sure) {
        findings.retain(Finding::likely);
        findings.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
    } else if held_up {
        findings.sort_by(|a, b| b.certainty().total_cmp(&a.certainty()));
    } else {
        findings.clear();
    }
}

/// Notes what trials measured, and takes out what they refuted.
fn proved(findings: &mut Vec<Finding>, tried: &[Tried]) {
    findings.retain_mut(|finding| {
        let change = Tried::of(&finding.verdict);
        let trial = change.and_then(|change| tried.iter().find(|tried| tried.is(&change)));
        finding.verdict.measured = trial.and_then(Tried::measured);
        !trial.is_some_and(Tried::refuted)
    });
}

/// What was measured of one change of a line says what others of the same line gain: as much more or less than promised, by logarithms.
fn learn(findings: &mut [Finding]) {
    let place = |finding: &Finding| {
        let place = finding.verdict.fix.as_ref()?.place.as_ref()?;
        Some((place.file.clone(), place.line))
    };
    let known: Vec<_> = findings
        .iter()
        .filter_map(|finding| {
            let (gain, measured) = (finding.verdict.gain?, finding.verdict.measured?);
            let edited = finding.verdict.fix.as_ref().is_some_and(|fix| fix.apply.is_none());
            let told = edited && gain.factor >= WORTH;
            told.then(|| (place(finding), (measured.factor.ln() / gain.factor.ln()).clamp(0.0, 1.0)))
        })
        .collect();
    for finding in findings.iter_mut().filter(|finding| finding.verdict.measured.is_none()) {
        let at = place(finding);
        let share = known.iter().find(|(place, _)| place.is_some() && *place == at).map(|(_, share)| *share);
        if let (Some(share), Some(gain)) = (share, &mut finding.verdict.gain) {
            let by = gain.factor.powf(share) / gain.factor;
            *gain = Gain { factor: by * gain.factor, low: by * gain.low, high: by * gain.high };
        }
    }
}

/// Share of the script's time from which on a loop is the script.
const ALL_OF_IT: f64 = 0.95;

/// The same verdict, with gains of the script in place of the loop's: the rest of it takes as long as before.
fn of_the_script(e: &Evidence, mut verdict: Verdict) -> Verdict {
    let share = e.share();
    if share >= ALL_OF_IT {
        return verdict;
    }
    let of_all = |factor: f64| 1.0 / (1.0 - share + share / factor.max(1e-9));
    if let Some(gain) = &mut verdict.gain {
        *gain = Gain { factor: of_all(gain.factor), low: of_all(gain.low), high: of_all(gain.high) };
    }
    verdict.bound = verdict.bound.map(of_all);
    if let Some(measured) = &mut verdict.measured {
        measured.factor = of_all(measured.factor);
        (measured.low, measured.high) = (of_all(measured.low), of_all(measured.high));
    }
    verdict
}

/// The verdict with the loop that it is about, where there are several.
fn named(e: &Evidence, mut verdict: Verdict) -> Verdict {
    let used = e.loaders.iter().filter(|used| used.steps > 0).count();
    let (share, subject) = (e.share(), e.subject);
    if let Some(subject) = subject.filter(|_| used > 1 && share < ALL_OF_IT && verdict.gain.is_some()) {
        let loader = &e.loaders[subject];
        let purpose = match Purpose::of(loader) {
            Purpose::Unknown => "One loop".to_owned(),
            known => {
                format!("The {} loop", if known == Purpose::Training { "training" } else { "evaluation" })
            }
        };
        let at = loader.loader.place.as_ref().map(code::where_made).unwrap_or_default();
        verdict.title = format!("{purpose}{at}, {} of the script's time: {}", percent(share), verdict.title);
    }
    verdict
}

/// What is said of the script and its neighbours: `now` are its causes as things are, `alone` those that it had without neighbours.
/// The former come in the order of what they gain, the neighbour among them, at the second place at least: it is told beside what
/// the script can change, and never in place of it. What gains something only once the neighbour is gone comes behind it.
fn beside(now: Vec<Finding>, alone: Vec<Finding>, neighbour: Finding, held_up: bool) -> Vec<Finding> {
    let mut later: Vec<Finding> =
        alone.into_iter().filter(|it| !now.iter().any(|other| other.verdict.id == it.verdict.id)).collect();
    for finding in &mut later {
        let cap = &mut finding.verdict.cap;
        *cap =
            format!("This is what it gains once the other processes are gone. {cap}").trim_end().to_owned();
    }
    let mut all = now;
    if neighbour.sure() || held_up {
        let at = all.iter().position(|other| other.weight() < neighbour.weight()).unwrap_or(all.len());
        all.insert(at.min(1), neighbour);
    }
    all.extend(later);
    all
}

fn nothing_seen(e: &Evidence) -> Verdict {
    let mut fix = None;
    let title = if e.loaders.is_empty() {
        "No data loader was seen, so there is nothing to judge".to_owned()
    } else if e.loaders.iter().all(|loader| loader.steps == 0) {
        "A loader was made, but never asked for a batch".to_owned()
    } else {
        let seen: Vec<String> =
            e.loaders.iter().map(|loader| format!("{} of {}", loader.steps, loader.loader.class)).collect();
        fix =
            Some(longer(e, format!("The first ones are not like the rest, and {FEWEST} others are needed.")));
        format!("Too few steps to judge: {}", seen.join(", "))
    };
    Verdict { id: "unknown".to_owned(), family: "unknown".to_owned(), title, fix, ..Verdict::default() }
}

/// The advice where a run was too short to tell.
fn longer(e: &Evidence, why: String) -> Fix {
    Fix {
        title: "Look longer".to_owned(),
        change: format!("wellfed doctor run --time 60 {}", code::command(e)),
        place: None,
        why,
        apply: None,
    }
}

fn fact(text: String, value: f64, unit: &str, source: &str) -> Fact {
    Fact { text, value, unit: unit.to_owned(), source: source.to_owned() }
}

/// Milliseconds, with as many digits as matter.
fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    match ms {
        _ if ms >= 100.0 => format!("{ms:.0} ms"),
        _ if ms >= 1.0 => format!("{ms:.1} ms"),
        _ => format!("{:.0} us", ms * 1e3),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
