//! A loader of wellfed's own engine over a store that answers later: S3, a web server, a delayed folder.
//!
//! The engine counts its requests, and finds out by itself how many at once bring more ([`Requests::limit`]). So what is under way
//! against what may be says which limit holds: the number of connections, the memory that may be read ahead, or, where neither
//! is reached and more brought nothing, the link (large answers) or the server (small ones). A server that asked to slow down
//! comes before all of them.

use super::{Case, Finding, Kind, Said, fact, loading, ms, percent};
use crate::{
    evidence::{Engine, Requests},
    model::{Cost, Pipeline},
    report::{Fact, Fix, Gain},
};

/// Connections of a store that nothing is said of (`max_pool_connections`), and those that a loader makes at most.
const CONNECTIONS: (f64, f64) = (256.0, 512.0);

/// Share of the limit that is under way where there is always something to ask for: answers are counted some time after they came.
const FULL: f64 = 0.7;

/// Bytes of an answer below which the server's work for it, not the link, is what it costs. The engine takes a request for as much
/// work as 16 KiB; four times as much is mostly bytes.
const SMALL: f64 = 64.0 * 1024.0;

/// Bytes from which on an answer takes as long as its bytes do: at 100 MB/s, 10 ms.
const LARGE: f64 = 1e6;

/// What holds requests back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Throttled,
    /// `max_pool_connections`.
    Connections,
    /// What may be read ahead.
    Memory,
    Server,
    Link,
}

/// Whether the engine waits for its stores, rather than for cores: then its pipeline has a bandwidth.
fn waited_for<'a>(case: &Case<'a>) -> Option<(&'a Engine, &'a Requests)> {
    let engine = case.e.engine.as_ref()?;
    let requests = engine.requests.as_ref()?;
    case.p.bandwidth.is_some().then_some((engine, requests))
}

pub(super) fn find(case: &Case) -> Option<Finding> {
    let (engine, requests) = waited_for(case)?;
    Some(match limit(engine, requests) {
        Limit::Throttled => throttled(case, requests),
        Limit::Connections => connections(case, requests),
        Limit::Memory => memory(case, engine, requests),
        Limit::Server => server(case, requests),
        Limit::Link => link(case, requests),
    })
}

fn limit(engine: &Engine, requests: &Requests) -> Limit {
    if requests.throttled > 0.0 {
        return Limit::Throttled;
    }
    let full = requests.under_way >= FULL * requests.limit;
    let may_rise = requests.connections > 0.0 && requests.connections < CONNECTIONS.1;
    if full && may_rise && requests.limit >= 0.95 * requests.connections {
        return Limit::Connections;
    }
    // What is asked for ahead does not fill the window: there is no room for more, unless it is large, and fills the link.
    let fit = requests.ahead / requests.size().max(1.0);
    let no_room = fit < 1.5 * requests.limit || engine.memory.0 > 0.8 * engine.memory.1;
    if !full && requests.ahead > 0.0 && no_room && requests.size() < LARGE {
        return Limit::Memory;
    }
    if requests.size() < SMALL { Limit::Server } else { Limit::Link }
}

/// What the store would give `times` as much of at once.
fn faster(case: &Case, times: f64) -> Pipeline {
    let bandwidth = case.p.bandwidth.map(|bandwidth| bandwidth * times);
    Pipeline { bandwidth, ..case.p.clone() }
}

/// The pipeline whose samples lie near.
fn near(case: &Case) -> Pipeline {
    Pipeline { bandwidth: None, ..case.p.with_make(|cost| Cost { bytes: 0.0, ..*cost }) }
}

/// How many times as much the store must give for the loop not to wait, and some more.
fn wanted(case: &Case) -> f64 {
    (1.3 * case.now / case.ideal.max(1e-12)).clamp(1.0, 64.0)
}

fn facts(case: &Case, requests: &Requests) -> Vec<Fact> {
    let mut facts = loading::waiting(case);
    facts.push(fact(
        format!(
            "A batch takes {:.1} requests of {:.0} KB each; {:.0} requests and {:.1} MB come a second.",
            requests.per_batch,
            requests.size() / 1e3,
            requests.rate,
            requests.bytes_rate / 1e6
        ),
        requests.bytes_rate,
        "bytes/s",
        "loader",
    ));
    facts.push(fact(
        format!("A request takes {} (95 %: {}).", ms(requests.times.0), ms(requests.times.1)),
        requests.times.0,
        "s",
        "loader",
    ));
    let most = if requests.connections > 0.0 {
        format!(", {:.0} at most", requests.connections)
    } else {
        String::new()
    };
    facts.push(fact(
        format!(
            "{:.1} requests are under way at once, of {:.0} that the engine found useful{most}.",
            requests.under_way, requests.limit
        ),
        requests.under_way,
        "requests",
        "loader",
    ));
    if requests.retried > 0.0 {
        facts.push(fact(
            format!("{:.0} requests failed and were made again.", requests.retried),
            requests.retried,
            "requests",
            "loader",
        ));
    }
    facts.push(loading::busy(case));
    facts
}

fn waits(case: &Case) -> String {
    percent(case.e.steps.wait() / case.e.steps.time())
}

/// The data set's options are set where it is opened, which the loader's place is nearest to.
fn fix(case: &Case, title: String, change: String, why: String) -> Fix {
    let place = case.e.loader().and_then(|loader| loader.place.clone());
    Fix { title, change, place, why, apply: None }
}

fn local(case: &Case, why: &str) -> Fix {
    let change = "# download once before training, and open the local copy".to_owned();
    fix(case, "Copy the data to a local disk".to_owned(), change, why.to_owned())
}

/// A cause, and what the loop would be without it.
fn finding(case: &Case, kind: Kind, id: &str, said: Said, changed: &Pipeline, unsure: f64) -> Finding {
    // The model's threads do not ask while they decode, and the engine's do: its loop is slower than the measured one, which has
    // less to gain.
    let most = (case.e.steps.whole() / case.ideal.max(1e-12)).max(1.0);
    let gain = case.gain(changed, unsure);
    let by = (most / gain.factor.max(1e-12)).min(1.0);
    let gain = Gain { factor: by * gain.factor, low: by * gain.low, high: by * gain.high };
    said.into_finding(kind, id, "storage", gain, case.cap(changed))
}

fn throttled(case: &Case, requests: &Requests) -> Finding {
    let mut facts = facts(case, requests);
    facts.push(fact(
        format!("The server asked {:.0} times to slow down.", requests.throttled),
        requests.throttled,
        "times",
        "loader",
    ));
    let title = format!(
        "The server asks to slow down: it takes {:.0} requests a second, and the loop waits {} of the time",
        requests.rate,
        waits(case)
    );
    let fix = local(
        case,
        "The engine asks for less until the server is content, and no option makes it answer more. Fewer requests do: a local copy, \
         or shards in the order in which they lie, where one request brings many samples.",
    );
    let said = Said { title, facts, fix };
    finding(case, Kind::Work, "network-throttled", said, &near(case), 0.15)
}

fn connections(case: &Case, requests: &Requests) -> Finding {
    let most = if requests.connections < CONNECTIONS.0 { CONNECTIONS.0 } else { CONNECTIONS.1 };
    let title = format!(
        "Too few requests at once: max_pool_connections allows {:.0}, each takes {}, and the loop waits {} of the time",
        requests.connections,
        ms(requests.times.0),
        waits(case)
    );
    let default = if most <= CONNECTIONS.0 { ", which is what there are without the option" } else { "" };
    let fix = fix(
        case,
        format!("Allow {most:.0} requests at once{default}"),
        format!("# where the data set is opened: storage_options={{\"max_pool_connections\": {most:.0}}}"),
        "All that may be are under way, and each mostly waits. The engine finds out by itself how many of those that are allowed bring more."
            .to_owned(),
    );
    let said = Said { title, facts: facts(case, requests), fix };
    // Nobody has seen yet what the link and the server bear.
    let changed = faster(case, most / requests.connections.max(1.0));
    finding(case, Kind::Setting, "network-latency", said, &changed, 0.2)
}

fn memory(case: &Case, engine: &Engine, requests: &Requests) -> Finding {
    let times = wanted(case).min(CONNECTIONS.1 / requests.under_way.max(1.0)).max(2.0);
    let mib = f64::from(1 << 20);
    // In whole powers of two, as people write them.
    let budget = (engine.memory.1 * times / mib).max(64.0).log2().ceil().exp2();
    let title = format!(
        "Too few requests at once: memory_budget leaves {:.0} MB for reading ahead, which is {:.0} requests, and the loop waits {} of the time",
        requests.ahead / 1e6,
        requests.ahead / requests.size().max(1.0),
        waits(case)
    );
    let mut facts = facts(case, requests);
    facts.push(fact(
        format!(
            "The loader holds {:.0} of {:.0} MB, of which {:.0} are for samples that are read ahead.",
            engine.memory.0 / 1e6,
            engine.memory.1 / 1e6,
            requests.ahead / 1e6
        ),
        requests.ahead,
        "bytes",
        "loader",
    ));
    let fix = fix(
        case,
        format!("Give the loader {budget:.0} MiB"),
        format!("# the data set .with_options(memory_budget={budget:.0} << 20)"),
        "Samples are asked for ahead within an eighth of the budget; with more, more requests are under way while each waits."
            .to_owned(),
    );
    let said = Said { title, facts, fix };
    let changed = faster(case, budget * mib / engine.memory.1.max(1.0));
    finding(case, Kind::Setting, "network-latency", said, &changed, 0.25)
}

fn server(case: &Case, requests: &Requests) -> Finding {
    let title = format!(
        "The store answers {:.0} requests a second, however many are under way, and the loop waits {} of the time",
        requests.rate,
        waits(case)
    );
    let fix = local(
        case,
        "Enough requests are under way; more at once only took longer. Fewer and larger ones take less time: a local copy, or shards in \
         the order in which they lie, where one request brings many samples.",
    );
    let said = Said { title, facts: facts(case, requests), fix };
    finding(case, Kind::Work, "network-latency", said, &near(case), 0.15)
}

fn link(case: &Case, requests: &Requests) -> Finding {
    let title = format!(
        "The store gives {:.1} MB/s, and the loop waits {} of the time for it",
        requests.bytes_rate / 1e6,
        waits(case)
    );
    let fix = local(
        case,
        "More requests at once bring no more bytes. Half the bytes take half the time, and a local copy takes none of the link.",
    );
    let said = Said { title, facts: facts(case, requests), fix };
    finding(case, Kind::Work, "network-bandwidth", said, &near(case), 0.12)
}
