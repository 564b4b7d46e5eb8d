//! Each rule on evidence made for it, and what no verdict may say.

mod again;
mod changes;
mod dataflow;
mod launch;
mod left;
mod loaders;
mod memory;

use proptest::prelude::*;

use super::*;
use crate::{
    evidence::{Batch, Engine, Loading, Loop, Requests, StageTime, Step, Waits},
    record,
};

const CORES: f64 = 4.0;

/// A loop that waits `wait` and computes `compute` seconds a step, the latter without a core.
fn looping(workers: i64, wait: f64, compute: f64) -> Evidence {
    let step = Step { wait, compute, wait_cpu: 1e-4, thread_cpu: 2e-4, process_cpu: 2e-4, ..Step::default() };
    let loader = record::Loader {
        framework: "torch".to_owned(),
        num_workers: workers,
        prefetch_factor: Some(2),
        batch_size: Some(16),
        in_order: true,
        persistent_workers: true,
        ..record::Loader::default()
    };
    let mut e = Evidence {
        loaders: vec![crate::evidence::LoaderUse { loader, steps: 100, epochs: 1, own: 9.0, whole: 9.0 }],
        subject: Some(0),
        steps: Loop { steps: vec![step; 100], ..Loop::default() },
        ..Evidence::default()
    };
    (e.machine.cores, e.machine.scaling) = (CORES, CORES);
    e
}

/// The same with batches that take `cpu` and `blocked` seconds to make, in a stage of that name.
fn loading(workers: i64, stage: &'static str, cpu: f64, blocked: f64, compute: f64) -> Evidence {
    let made = cpu + blocked;
    let wait = if workers == 0 { made } else { (made / workers as f64 - compute).max(1e-4) };
    let mut e = looping(workers, wait, compute);
    let batch =
        Batch { wall: made, cpu, process_cpu: cpu, samples: 16, exact: true, every: 1.0, ..Batch::default() };
    e.loading = Loading {
        in_workers: workers > 0,
        batches: vec![batch; 100],
        send_cpu: 1e-4,
        send: 1e-4,
        ..Loading::default()
    };
    if workers == 0 {
        e.steps.steps.iter_mut().for_each(|step| step.wait_cpu = cpu);
    }
    e.stages.loading = vec![StageTime { name: stage, cpu, blocked, ..StageTime::default() }];
    e.load.busy = (cpu * workers.max(1) as f64 / made).min(CORES);
    e
}

/// A loader of wellfed's whose engine takes so long for a batch.
fn engine(workers: u32, stages: &[StageTime], wait: f64, compute: f64) -> Evidence {
    let mut e = looping(0, wait, compute);
    e.loaders[0].loader.framework = "wellfed".to_owned();
    let times = stages.iter().map(|stage| (stage.name, stage.time())).collect();
    e.engine = Some(Engine { workers, stages: times, ..Engine::default() });
    e.stages.loading = stages.to_vec();
    e.load.ours = stages.iter().map(|stage| stage.cpu).sum::<f64>() / (wait + compute);
    e
}

fn stage(name: &'static str, cpu: f64, blocked: f64) -> StageTime {
    StageTime { name, cpu, blocked, ..StageTime::default() }
}

/// The engine over a store, whose requests of `bytes` take `time` seconds, `under_way` of `limit` at once, of `connections` at most.
/// The threads have little to do, and the loop waits three quarters of the time.
fn afar(bytes: f64, time: f64, under_way: f64, limit: f64, connections: f64) -> Evidence {
    let mut e = engine(2, &[stage("decode", 0.002, 0.0)], 0.03, 0.01);
    let rate = under_way / time;
    let seen = e.engine.as_mut().unwrap();
    (seen.memory.0, seen.memory.1) = (1e8, 4e9);
    seen.requests = Some(Requests {
        per_batch: rate * 0.04,
        bytes_per_batch: rate * 0.04 * bytes,
        rate,
        bytes_rate: rate * bytes,
        under_way,
        limit,
        connections,
        ahead: 5e8,
        times: (time, 2.0 * time),
        ..Requests::default()
    });
    e
}

/// The same in workers of a script: batches that wait 0.2 s for the network, in these parts.
fn over_the_network(workers: i64, waits: Waits) -> Evidence {
    let mut e = loading(workers, "network", 0.002, 0.2, 0.01);
    e.stages.loading[0].waits = waits;
    e.load.received = 2e7;
    e
}

fn said(e: &Evidence) -> Vec<String> {
    let judged = judge(e);
    std::iter::once(judged.verdict)
        .chain(judged.runner_up)
        .chain(judged.others)
        .map(|verdict| verdict.id)
        .collect()
}

/// What is said of a cause, first or later.
fn found(e: &Evidence, id: &str) -> Option<Verdict> {
    let judged = judge(e);
    std::iter::once(judged.verdict)
        .chain(judged.runner_up)
        .chain(judged.others)
        .find(|verdict| verdict.id == id)
}

#[test]
fn a_loop_that_hardly_waits_is_told_so() {
    let judged = judge(&loading(2, "decode", 0.002, 0.0, 0.02));
    assert_eq!(judged.verdict.family, "healthy");
    assert!(judged.verdict.gain.is_none() && judged.runner_up.is_none());
}

#[test]
fn too_few_workers_come_before_the_work_they_would_do() {
    let judged = judge(&loading(0, "decode", 0.02, 0.0, 0.02));
    assert_eq!(judged.verdict.id, "serial-loading");
    let gain = judged.verdict.gain.unwrap();
    assert!(
        (1.7..2.1).contains(&gain.factor) && gain.low < gain.factor && gain.factor < gain.high,
        "{gain:?}"
    );
}

#[test]
fn an_iterable_data_set_that_every_worker_would_give_whole_gets_one() {
    let mut e = loading(0, "decode", 0.05, 0.0, 0.002);
    let workers = |e: &Evidence| {
        let all = judge(e);
        let found =
            [&all.verdict].into_iter().chain(&all.runner_up).chain(&all.others).find_map(|verdict| {
                verdict.fix.as_ref()?.apply.as_ref()?.loader.get("num_workers")?.as_u64()
            });
        found.unwrap_or(0)
    };
    assert!(workers(&e) > 1);
    e.loaders[0].loader.iterable = true;
    assert!(workers(&e) <= 1, "{}", workers(&e));
    e.loaders[0].loader.dataset = "webdataset.compat.WebDataset".to_owned();
    assert!(workers(&e) > 1);
}

#[test]
fn work_is_named_where_all_cores_do_it() {
    assert_eq!(said(&loading(4, "decode", 0.2, 0.0, 0.01))[0], "decode");
    assert_eq!(said(&loading(4, "decompress", 0.2, 0.0, 0.01))[0], "decompress");
    assert_eq!(said(&loading(4, "python", 0.2, 0.0, 0.01))[0], "python-overhead");
}

#[test]
fn a_call_of_native_code_is_not_the_interpreters_cost() {
    let mut e = loading(4, "python", 0.2, 0.0, 0.01);
    let mut stage = made_by("python", 0.2, "/home/me/train.py", "x = x.sort()");
    stage.culprits[0].native =
        Some(record::Frame { call: "x.sort()".to_owned(), ..record::Frame::default() });
    e.stages.loading = vec![stage];
    let title = |e: &Evidence| judge(e).verdict.title;
    assert!(title(&e).starts_with("Python code for each sample"), "{}", title(&e));
    e.stages.outside_looks = 500;
    assert!(title(&e).starts_with("`x.sort()` for each sample"), "{}", title(&e));
    // Where it is a smaller part, the rest is the interpreter's.
    e.stages.loading[0].culprits[0].time = 0.1;
    assert!(title(&e).starts_with("Python code for each sample"), "{}", title(&e));
}

/// A finding of the work rules, with what is known of wellfed's loader.
fn with_outlook(plan: &str, images: bool) -> (f64, bool) {
    let mut e = loading(4, "decode", 0.2, 0.0, 0.01);
    e.loaders[0].loader.dataset = "torchvision.datasets.folder.ImageFolder".to_owned();
    e.stages.loading = vec![made_by("decode", 0.2, "site-packages/PIL/ImageFile.py", "img.load()")];
    e.fed = Some(record::Fed { plan: plan.to_owned(), images, ..record::Fed::default() });
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "decode");
    (verdict.gain.unwrap().factor, verdict.fix.unwrap().apply.is_some_and(|apply| apply.feed))
}

#[test]
fn what_the_loader_would_gain_is_what_would_run_natively() {
    let (native, takes) = with_outlook("native", false);
    assert!(takes && native > 4.0, "{native}");
    let (lazy, takes) = with_outlook("python", true);
    assert!(takes && lazy > 1.5 && lazy < native, "{lazy}");
    // torchvision's data set with transforms that stay in Python.
    let (_, takes) = with_outlook("python", false);
    assert!(!takes);
}

#[test]
fn a_wait_that_is_small_but_there_has_its_cause_named() {
    // A tenth of the time: no gain is certain from that, but that something is waited for is.
    let judged = judge(&loading(0, "decode", 0.01, 0.0, 0.09));
    assert_eq!(judged.verdict.id, "serial-loading");
    assert!(judged.verdict.gain.unwrap().factor < 1.12);
}

#[test]
fn an_engine_with_few_threads_gets_more() {
    let e = engine(1, &[stage("decode", 0.04, 0.0)], 0.03, 0.01);
    assert_eq!(said(&e)[0], "serial-loading");
    let e = engine(4, &[stage("decode", 0.16, 0.0)], 0.03, 0.01);
    assert_eq!(said(&e)[0], "decode");
    let e = engine(4, &[stage("read", 0.004, 0.12), stage("decode", 0.02, 0.0)], 0.03, 0.01);
    assert_eq!(said(&e)[0], "storage-latency");
}

#[test]
fn an_engine_that_may_make_too_few_requests_gets_more_connections() {
    let mut e = afar(1e5, 0.02, 3.9, 4.0, 4.0);
    let judged = judge(&e);
    assert_eq!((judged.verdict.id.as_str(), judged.runner_up), ("network-latency", None));
    assert!(judged.verdict.title.contains("max_pool_connections allows 4"), "{}", judged.verdict.title);
    let fix = judged.verdict.fix.unwrap();
    assert!(fix.change.contains("{\"max_pool_connections\": 256}"), "{}", fix.change);
    let gain = judged.verdict.gain.unwrap();
    assert!((3.6..4.2).contains(&gain.factor) && gain.low > 2.0, "the step takes a quarter: {gain:?}");
    // Twice as many give twice as much at most.
    let requests = e.engine.as_mut().unwrap().requests.as_mut().unwrap();
    (requests.under_way, requests.limit, requests.connections) = (255.0, 256.0, 256.0);
    let judged = judge(&e);
    assert!(judged.verdict.fix.unwrap().change.contains("512"));
    assert!((1.9..2.1).contains(&judged.verdict.gain.unwrap().factor));
    // There are as many as a loader makes: what more would do, no option allows.
    let requests = e.engine.as_mut().unwrap().requests.as_mut().unwrap();
    (requests.under_way, requests.limit, requests.connections) = (511.0, 512.0, 512.0);
    let fix = judge(&e).verdict.fix.unwrap();
    assert!(!fix.change.contains("max_pool_connections"), "{}", fix.change);
}

#[test]
fn an_engine_whose_budget_holds_few_requests_gets_memory() {
    // 64 may be under way, and 8 MB are for 10 of 0.8 MB.
    let mut e = afar(8e5, 0.08, 9.5, 64.0, 256.0);
    let seen = e.engine.as_mut().unwrap();
    (seen.memory.0, seen.memory.1) = (4e7, f64::from(64 << 20));
    seen.requests.as_mut().unwrap().ahead = 8e6;
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "network-latency");
    assert!(verdict.title.contains("memory_budget leaves 8 MB for reading ahead, which is 10 requests"));
    let fix = verdict.fix.unwrap();
    assert!(fix.change.contains("memory_budget=512 << 20"), "{}", fix.change);
    assert!(verdict.gain.unwrap().factor > 3.0);
    // Neighbours that are one request of 8 MB: so few fill a link.
    e.engine.as_mut().unwrap().requests.as_mut().unwrap().bytes_rate *= 10.0;
    assert_eq!(judge(&e).verdict.id, "network-bandwidth");
}

#[test]
fn what_more_requests_did_not_bring_is_the_link_or_the_server() {
    let verdict = judge(&afar(4e5, 0.2, 31.0, 40.0, 256.0)).verdict;
    assert_eq!(verdict.id, "network-bandwidth");
    assert!(verdict.title.starts_with("The store gives 62.0 MB/s"), "{}", verdict.title);
    let verdict = judge(&afar(4e3, 0.2, 40.0, 40.0, 256.0)).verdict;
    assert_eq!(verdict.id, "network-latency");
    assert!(verdict.title.contains("200 requests a second, however many"), "{}", verdict.title);
}

#[test]
fn a_server_that_asks_to_slow_down_comes_before_what_that_leads_to() {
    for (limit, connections) in [(4.0, 4.0), (40.0, 256.0)] {
        let mut e = afar(1e5, 0.02, 3.9, limit, connections);
        e.engine.as_mut().unwrap().requests.as_mut().unwrap().throttled = 3.0;
        let verdict = judge(&e).verdict;
        assert_eq!(verdict.id, "network-throttled");
        assert!(verdict.evidence.iter().any(|fact| fact.text == "The server asked 3 times to slow down."));
    }
}

#[test]
fn a_store_is_no_cause_where_nobody_waits_for_it() {
    // Cores are the limit, or the step is.
    let mut e = afar(1e5, 0.02, 3.9, 4.0, 4.0);
    let seen = e.engine.as_mut().unwrap();
    seen.stages = vec![("decode", 0.08)];
    e.stages.loading = vec![stage("decode", 0.08, 0.0)];
    e.machine.cores = 2.0;
    (e.load.ours, e.load.busy) = (2.0, 2.0);
    assert_eq!(said(&e)[0], "decode");
    let mut e = afar(1e5, 0.02, 3.9, 4.0, 4.0);
    e.steps.steps.iter_mut().for_each(|step| (step.wait, step.compute) = (1e-4, 0.04));
    assert_eq!(judge(&e).verdict.family, "healthy");
}

#[test]
fn answers_that_are_waited_for_get_more_workers() {
    let answers = Waits { connection: 0.2, answer: 0.7, body: 0.05, pause: 0.0 };
    let judged = judge(&over_the_network(4, answers));
    assert_eq!(judged.verdict.id, "network-latency");
    let workers = judged.verdict.fix.unwrap().apply.unwrap().loader["num_workers"].as_u64().unwrap();
    assert!((16..=32).contains(&workers), "{workers}");
    assert!(judged.verdict.gain.unwrap().factor > 3.0);
    // What wellfed reads itself over the same URL is said.
    let mut e = over_the_network(4, answers);
    e.loaders[0].loader.dataset = "webdataset.compat.WebDataset".to_owned();
    assert!(judge(&e).verdict.fix.unwrap().why.contains("wellfed.webdataset("));
    // Each worker would give all samples: more of them are no help.
    let mut e = over_the_network(1, answers);
    e.loaders[0].loader.iterable = true;
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "network-latency");
    assert!(verdict.fix.unwrap().apply.is_none());
}

#[test]
fn bodies_of_answers_are_a_matter_of_the_link_and_pauses_one_of_the_server() {
    let bodies = Waits { answer: 0.1, body: 0.85, ..Waits::default() };
    let verdict = judge(&over_the_network(4, bodies)).verdict;
    assert_eq!(verdict.id, "network-bandwidth");
    assert!(verdict.fix.unwrap().apply.is_none(), "more workers share the same link");
    let pauses = Waits { answer: 0.5, body: 0.1, pause: 0.4, ..Waits::default() };
    let verdict = judge(&over_the_network(4, pauses)).verdict;
    assert_eq!(verdict.id, "network-throttled");
    assert!(verdict.title.contains("40 % of the network's time are pauses"), "{}", verdict.title);
    // Samples that were refused take long, and are no tail of the data's.
    let mut e = over_the_network(4, pauses);
    let sample = |i: i64| crate::evidence::Sample {
        index: i,
        wall: if i % 50 == 0 { 0.4 } else { 0.01 },
        ..crate::evidence::Sample::default()
    };
    e.loading.samples = (0..400).map(sample).collect();
    e.loading.batches.iter_mut().step_by(3).for_each(|batch| batch.wall += 0.4);
    assert_eq!(said(&e), ["network-throttled"]);
    e.stages.loading[0].waits = bodies;
    assert!(said(&e).contains(&"long-tail".to_owned()));
    // Nor are those into which a collection of garbage falls.
    let cpu = e.loading.mean(|batch| batch.cpu);
    e.garbage.making = 0.6 * cpu;
    assert!(cpu > 0.0 && !said(&e).contains(&"long-tail".to_owned()));
    // A rare failure is none.
    let rarely = Waits { answer: 0.9, pause: 0.05, ..Waits::default() };
    assert_eq!(judge(&over_the_network(4, rarely)).verdict.id, "network-latency");
}

/// Batches that overlap with one to four others, and wait `alone` seconds and `more` for each of them.
fn in_company(alone: f64, more: f64) -> Evidence {
    let mut e = over_the_network(4, Waits::default());
    let mut at = 0;
    for (i, batch) in e.loading.batches.iter_mut().enumerate() {
        // Groups of one to four begin together.
        let together = 1 + (i / 4) % 4;
        if i % 4 == 0 {
            at += 10_000_000_000;
        }
        let begin = at + if i % 4 < together { 0 } else { 2_000_000_000 * (i % 4) as u64 };
        let with = if i % 4 < together { together as f64 } else { 1.0 };
        batch.wall = alone + more * with + 0.002;
        (batch.t0, batch.t1) = (begin, begin + (batch.wall * 1e9) as u64);
    }
    e
}

#[test]
fn clients_that_wait_unseen_are_told_by_company_or_not_at_all() {
    // Nothing of the stacks shows it: without company either, nothing is claimed.
    assert_eq!(judge(&over_the_network(4, Waits::default())).verdict.id, "network");
    assert_eq!(judge(&in_company(0.01, 0.1)).verdict.id, "network-bandwidth");
    assert_eq!(judge(&in_company(0.2, 0.001)).verdict.id, "network-latency");
}

#[test]
fn a_loop_that_waits_for_what_nobody_saw_is_not_called_healthy() {
    let judged = judge(&looping(4, 0.03, 0.03));
    assert_eq!(judged.verdict.id, "unknown");
    assert!(judged.verdict.gain.is_none());
}

#[test]
fn threads_that_want_the_same_lock_are_told() {
    let mut e = looping(0, 0.01, 0.03);
    (e.stages.gil_late, e.stages.gil_threads) = (0.004, 2.6);
    assert!(said(&e).contains(&"gil-contention".to_owned()), "{:?}", said(&e));
    e.stages.gil_threads = 1.0;
    assert!(!said(&e).contains(&"gil-contention".to_owned()));
}

#[test]
fn memory_that_does_not_hold_the_data_is_told() {
    let mut e = loading(4, "read", 0.01, 0.19, 0.01);
    for batch in &mut e.loading.batches {
        (batch.bytes, batch.disk_bytes) = (1e6, 8e5);
    }
    e.steps.first_epoch = Some(1.0);
    e.load.memory = 0.6;
    assert_eq!(said(&e)[0], "page-cache-thrash");
    e.load.memory = 0.97;
    assert_eq!(said(&e)[0], "memory-limit");
}

#[test]
fn the_memory_of_a_device_is_told_beside_the_verdict() {
    let mut e = loading(2, "decode", 0.002, 0.0, 0.02);
    e.machine.gpus = vec![crate::system::Gpu { memory: 16_000_000_000, ..crate::system::Gpu::default() }];
    for (used, id) in [(0.96, "gpu-memory-full"), (0.2, "gpu-memory-empty")] {
        e.load.gpu_memory = Some(used);
        assert_eq!(said(&e).last().unwrap(), id);
    }
    e.load.gpu_memory = Some(0.7);
    assert_eq!(said(&e).len(), 1);
}

#[test]
fn threads_of_workers_are_capped_where_they_fight() {
    let mut e = loading(8, "python", 0.05, 0.0, 0.01);
    for batch in &mut e.loading.batches {
        batch.process_cpu = 4.0 * batch.cpu;
    }
    (e.load.worker_threads, e.load.busy) = (8.0, CORES);
    let judged = judge(&e);
    assert_eq!(judged.verdict.id, "cpu-oversubscription");
    assert!(judged.verdict.fix.unwrap().apply.unwrap().env.contains_key("OMP_NUM_THREADS"));
}

#[test]
fn a_neighbour_costs_more_where_threads_spin() {
    let mut e = loading(4, "decode", 0.01, 0.0, 0.1);
    (e.load.foreign, e.load.ours, e.load.busy) = (2.0, 2.0, CORES);
    let gain = |e: &Evidence| {
        let judged = judge(e);
        assert_eq!(judged.verdict.id, "noisy-neighbour");
        judged.verdict.gain.unwrap()
    };
    for step in &mut e.steps.steps {
        (step.thread_cpu, step.process_cpu) = (0.1, 0.1);
    }
    e.load.queued = 4.0;
    let alone = gain(&e);
    e.steps.steps.iter_mut().for_each(|step| step.process_cpu = 0.3);
    let together = gain(&e);
    assert!(together.factor > alone.factor && together.high > alone.high, "{alone:?} {together:?}");
}

fn busy_neighbour(e: &mut Evidence, cores: f64) {
    (e.load.foreign, e.load.busy, e.load.queued) = (cores, CORES, cores);
    e.load.neighbours =
        vec![crate::evidence::Neighbour { pid: 4711, name: "python spin.py".to_owned(), cores }];
}

#[test]
fn a_neighbour_is_named_beside_the_causes_of_the_script() {
    // Batches are made in the training process, and somebody else keeps cores busy.
    let mut e = loading(0, "decode", 0.02, 0.0, 0.02);
    let alone = judge(&e).verdict;
    for cores in [1.0, 2.0, 3.0, 4.0] {
        busy_neighbour(&mut e, cores);
        e.load.ours = 0.5;
        let judged = judge(&e);
        let said: Vec<_> =
            [&judged.verdict].into_iter().chain(&judged.runner_up).chain(&judged.others).collect();
        // They come in the order of what they gain, but no further back than second place for the neighbour.
        let own = said.iter().find(|verdict| verdict.id == alone.id).unwrap();
        assert!(own.fix.as_ref().unwrap().change.contains("num_workers="), "{cores} {said:?}");
        assert!(cores < 2.0 || said[..2].iter().any(|verdict| verdict.id == "noisy-neighbour"));
        let neighbour = said.iter().find(|verdict| verdict.id == "noisy-neighbour");
        let Some(neighbour) = neighbour else { continue };
        assert!(neighbour.title.contains("python spin.py (4711)"), "{}", neighbour.title);
        assert!(neighbour.evidence.iter().any(|fact| fact.text.contains("process 4711")));
    }
    assert!(said(&e).contains(&"noisy-neighbour".to_owned()), "{:?}", said(&e));
}

#[test]
fn a_neighbour_is_the_verdict_where_the_script_has_no_cause_of_its_own() {
    // A step that computes on all cores.
    let mut e = loading(4, "decode", 0.01, 0.0, 0.1);
    for step in &mut e.steps.steps {
        (step.thread_cpu, step.process_cpu) = (0.1, 0.3);
    }
    busy_neighbour(&mut e, 2.0);
    e.load.ours = 2.0;
    assert_eq!(said(&e)[0], "noisy-neighbour");
    e.load.neighbours.clear();
    let verdict = judge(&e).verdict;
    assert!(verdict.title.starts_with("Another process takes"), "{}", verdict.title);
    assert!(verdict.fix.unwrap().change.contains("container"));
}

#[test]
fn an_interval_that_says_nothing_is_no_verdict() {
    // The model makes 0.5 ms of a step that took 30.
    let gain = |low: f64, high: f64| {
        let verdict = Verdict { gain: Some(Gain { factor: 14.0, low, high }), ..Verdict::default() };
        Finding { verdict, kind: Kind::Work }.told()
    };
    assert!(gain(8.0, 20.0) && gain(5.0, 40.0) && !gain(1.0, 184.0) && !gain(1.0, 10.0));
    let mut e = loading(4, "decode", 0.002, 0.0, 0.0001);
    e.steps.steps.iter_mut().for_each(|step| step.wait = 0.3);
    let judged = judge(&e);
    assert_eq!(judged.verdict.id, "unknown", "{:?}", judged.verdict);
    for verdict in [&judged.verdict].into_iter().chain(&judged.runner_up).chain(&judged.others) {
        assert!(verdict.gain.is_none_or(|gain| gain.high <= WIDEST * gain.low), "{verdict:?}");
    }
    let change = judged.verdict.fix.unwrap().change;
    assert!(change.starts_with("wellfed doctor run --time 60 "), "{change}");
}

/// A stage whose time goes into one call of a library.
fn made_by(name: &'static str, cpu: f64, file: &str, call: &str) -> StageTime {
    let frame = record::Frame { file: file.to_owned(), call: call.to_owned(), ..record::Frame::default() };
    let culprit = crate::evidence::Culprit { frame, time: cpu, cpu, ..Default::default() };
    StageTime { culprits: vec![culprit], ..stage(name, cpu, 0.0) }
}

/// What `feed` is said to gain for a loader on all cores, by plan, transform, and stage; nothing if it is not advised.
fn fed_gain(plan: &str, images: bool, transform: &str, stages: &[StageTime]) -> Option<f64> {
    let cpu: f64 = stages.iter().map(|stage| stage.cpu).sum();
    let mut e = loading(4, "decode", cpu, 0.0, 0.001);
    e.stages.loading = stages.to_vec();
    e.loaders[0].loader.transform = transform.to_owned();
    e.loaders[0].loader.dataset = "Own".to_owned();
    e.fed = Some(record::Fed { plan: plan.to_owned(), images, ..record::Fed::default() });
    let judged = judge(&e);
    [&judged.verdict]
        .into_iter()
        .chain(&judged.runner_up)
        .chain(&judged.others)
        .filter(|verdict| {
            verdict.fix.as_ref().and_then(|fix| fix.apply.as_ref()).is_some_and(|apply| apply.feed)
        })
        .find_map(|verdict| Some(verdict.gain?.factor))
}

#[test]
fn the_gain_of_feed_follows_what_would_be_native() {
    let pil = "site-packages/PIL/ImageFile.py";
    let decode = || made_by("decode", 0.2, pil, "img.load()");
    let crops = fed_gain("native", false, "RandomResizedCrop(224)", &[decode()]).unwrap();
    let randaugment = fed_gain("native", false, "RandAugment()", &[decode()]).unwrap();
    assert!(randaugment < crops && (5.0..8.0).contains(&randaugment), "{randaugment} {crops}");
    let lazy =
        fed_gain("python", true, "", &[decode(), made_by("augment", 0.1, pil, "img.resize()")]).unwrap();
    assert!((2.5..3.5).contains(&lazy), "{lazy}");
    let opencv =
        fed_gain("python", true, "", &[made_by("decode", 0.2, "own.py", "cv2.imread(path)")]).unwrap();
    assert!((1.2..1.6).contains(&opencv), "{opencv}");
    // Decoders that are quicker than Pillow's leave less to be gained, and rows that are only copied leave the most.
    let opencv =
        fed_gain("native", false, "", &[made_by("decode", 0.2, "own.py", "cv2.imread(path)")]).unwrap();
    assert!((3.5..5.0).contains(&opencv), "{opencv}");
    let rows = fed_gain("native", false, "", &[stage("collate", 0.2, 0.0)]).unwrap();
    assert!(rows > crops, "{rows}");
    // Images that no library makes which wellfed knows, and loaders that it would not take.
    assert_eq!(fed_gain("python", true, "", &[made_by("decode", 0.2, "own.py", "decode(data)")]), None);
    for plan in ["python", "refused"] {
        assert_eq!(fed_gain(plan, false, "", &[decode()]), None);
        assert_eq!(fed_gain(plan, false, "", &[made_by("augment", 0.2, pil, "img.rotate()")]), None);
    }
    assert_eq!(fed_gain("refused", false, "", &[stage("collate", 0.2, 0.0)]), None);
    assert!(fed_gain("tensors", false, "", &[stage("python", 0.2, 0.0)]).is_some());
}

#[test]
fn the_engine_has_no_workers_to_start_in_each_epoch() {
    let gain = |started: f64| {
        let mut e = loading(4, "decode", 0.2, 0.0, 0.001);
        e.steps.steps_per_epoch = 10.0;
        e.steps.starts = vec![started];
        e.fed = Some(record::Fed { plan: "native".to_owned(), ..record::Fed::default() });
        judge(&e).verdict.gain.unwrap().factor
    };
    assert!(gain(0.5) > 1.5 * gain(0.0), "{} {}", gain(0.5), gain(0.0));
}

#[test]
fn what_the_engine_would_do_is_said_once() {
    let mut e = loading(4, "decode", 0.4, 0.0, 0.001);
    e.stages.loading = vec![
        stage("decode", 0.1, 0.0),
        stage("augment", 0.2, 0.0),
        stage("python", 0.04, 0.0),
        stage("collate", 0.06, 0.0),
    ];
    e.fed = Some(record::Fed { plan: "native".to_owned(), ..record::Fed::default() });
    assert_eq!(said(&e), ["augment"]);
}

#[test]
fn feed_is_not_advised_where_samples_and_collation_stay_as_they_are() {
    let feeds = |workers: i64, collate: &str| {
        let mut e = loading(workers, "collate", 0.2, 0.0, 0.001);
        e.loading.send_cpu = 0.05;
        e.steps.steps.iter_mut().for_each(|step| step.wait_cpu = 0.05);
        e.loaders[0].loader.collate = collate.to_owned();
        e.fed = Some(record::Fed { plan: "python".to_owned(), ..record::Fed::default() });
        let judged = judge(&e);
        [&judged.verdict].into_iter().chain(&judged.runner_up).chain(&judged.others).any(|verdict| {
            verdict.fix.as_ref().and_then(|fix| fix.apply.as_ref()).is_some_and(|apply| apply.feed)
        })
    };
    assert!(feeds(4, "torch.utils.data._utils.collate.default_collate"));
    // Detection: tuples of a function of its own, and images of many sizes.
    assert!(!feeds(4, "<lambda>") && !feeds(4, "detection.collate"));
    assert!(!feeds(0, "torch.utils.data._utils.collate.default_collate"));
}

#[test]
fn how_a_step_that_sleeps_would_spin_is_not_guessed() {
    let unsure = |computing: f64| {
        let mut e = loading(4, "decode", 0.01, 0.0, 0.1);
        (e.load.foreign, e.load.ours, e.load.busy, e.load.queued) = (2.0, 2.0, CORES, 4.0);
        for step in &mut e.steps.steps {
            (step.thread_cpu, step.process_cpu) = (computing, 3.0 * computing);
        }
        let case = Case::of(&e).unwrap();
        let gain = contention::neighbour(&case).unwrap().verdict.gain.unwrap();
        (gain.high / gain.factor).ln()
    };
    assert!(unsure(0.005) < 0.5 * unsure(0.09), "{} {}", unsure(0.005), unsure(0.09));
}

#[test]
fn launching_is_named_by_what_it_takes() {
    // A step of so many seconds that calls 200 modules and computes all the time.
    let of = |step: f64| {
        let mut e = looping(0, 1e-4, step);
        e.steps.steps.iter_mut().for_each(|each| (each.thread_cpu, each.process_cpu) = (step, step));
        e.model = Some(record::Model { module_calls: 200, ..record::Model::default() });
        e.stages.looping = vec![stage("forward", step / 3.0, 0.0), stage("backward", step / 1.5, 0.0)];
        judge(&e).verdict
    };
    let (all, some) = (of(0.006), of(0.05));
    assert_eq!((all.id.as_str(), some.id.as_str()), ("launch-bound", "launch-bound"));
    assert!(all.gain.unwrap().factor > 5.0);
    assert!((1.1..1.3).contains(&some.gain.unwrap().factor), "{some:?}");
    assert_eq!(of(0.5).id, "compute-bound", "two percent");
}

#[test]
fn a_model_slower_than_the_loop_promises_what_the_loop_has_to_gain() {
    // A few small answers a second: the model adds the time of decoding to what was waited for.
    let mut e = afar(100.0, 1e-4, 0.01, 1.0, 0.0);
    e.steps.steps.iter_mut().for_each(|step| (step.wait, step.compute) = (0.0087, 0.002));
    let gain = judge(&e).verdict.gain.unwrap();
    assert!((5.0..=5.351).contains(&gain.factor), "the step takes 2 of 10.7 ms: {gain:?}");
}

#[test]
fn of_gains_that_are_alike_a_setting_comes_first() {
    let finding = |kind, factor: f64| {
        let gain = Gain { factor, low: 0.9 * factor, high: factor / 0.9 };
        Finding { verdict: Verdict { gain: Some(gain), ..Verdict::default() }, kind }
    };
    let setting = finding(Kind::Setting, 1.06).certainty();
    assert!(setting > finding(Kind::Work, 1.07).certainty());
    assert!(setting < finding(Kind::Work, 1.1).certainty());
}

/// tf.data that makes batches of 10 ms one after the other, ahead of steps of 9.5 ms.
fn dataflow(told: f64) -> Evidence {
    let mut e = looping(0, 0.0008, 0.0095);
    e.loaders[0].loader.framework = "tf.data".to_owned();
    e.load.ours = 1.1;
    let node = record::Node {
        name: "MapAndBatch".to_owned(),
        parallelism: 1,
        elements: 100,
        time: (told * 100.0 * 1e9) as u64,
        ..record::Node::default()
    };
    e.flow = Some(crate::evidence::Flow { batches: 100.0, nodes: vec![node] });
    e
}

#[test]
fn what_nodes_do_not_tell_is_made_one_after_the_other_too() {
    let measured = dataflow(0.01).steps.whole();
    for told in [0.0103, 0.0098, 0.0095] {
        let e = dataflow(told);
        let case = Case::of(&e).unwrap();
        assert!((case.now / measured - 1.0).abs() < 0.01, "{told}: {} of {measured}", case.now);
        assert_eq!(said(&e)[0], "serial-loading", "{told}");
    }
}

/// tf.data that makes batches on all cores, which is not enough, by such operations.
fn busy_dataflow(decodes: &[&str], fed: Option<record::Fed>) -> Evidence {
    let mut e = looping(-1, 0.04, 0.01);
    e.loaders[0].loader.framework = "tf.data".to_owned();
    e.loaders[0].loader.decodes = decodes.iter().map(|name| (*name).to_owned()).collect();
    e.load.ours = 3.9;
    e.load.busy = 3.9;
    let node = |name: &str, parallelism, capacity, time: f64| record::Node {
        name: name.to_owned(),
        parallelism,
        capacity,
        elements: 100,
        time: (time * 100.0 * 1e9) as u64,
        ..record::Node::default()
    };
    let nodes = vec![node("ParallelMapV2", 4, 0, 0.19), node("Prefetch", 0, 8, 0.001)];
    e.flow = Some(crate::evidence::Flow { batches: 100.0, nodes });
    e.fed = fed;
    e
}

#[test]
fn what_tf_data_is_told_to_do_fits_what_it_reads() {
    let of = |decodes: &[&str], fed| judge(&busy_dataflow(decodes, fed)).verdict;
    let images = |plan: &str| {
        let place = record::Place {
            code: "data = files.map(decode).prefetch(2)".to_owned(),
            call: Some([7, 36]),
            ..record::Place::default()
        };
        Some(record::Fed {
            plan: plan.to_owned(),
            images: true,
            place: Some(place),
            ..record::Fed::default()
        })
    };
    let native = of(&["DecodeJpeg"], images("native"));
    let fix = native.fix.unwrap();
    assert_eq!((native.id.as_str(), fix.apply.unwrap().feed), ("decode", true));
    assert_eq!(fix.change, "import wellfed\ndata = wellfed.feed(files.map(decode).prefetch(2))");
    let gain = native.gain.unwrap().factor;
    assert!((1.4..2.0).contains(&gain), "{gain}");
    assert!(of(&["DecodeJpeg"], images("hybrid")).gain.unwrap().factor < gain);
    // Where a trial shows that wellfed gains nothing, less work is left.
    let mut e = busy_dataflow(&["DecodeJpeg"], images("native"));
    let feed = crate::report::Apply { feed: true, ..Default::default() };
    e.tried = vec![Tried { apply: feed, before: 0.05, after: 0.05, ..Tried::default() }];
    let verdict = judge(&e).verdict;
    assert_eq!((verdict.id.as_str(), verdict.fix.unwrap().apply), ("decode", None));
    let refused = Some(record::Fed { plan: "python".to_owned(), ..record::Fed::default() });
    let change = |decodes: &[&str]| {
        let verdict = of(decodes, refused.clone());
        assert_eq!(verdict.id, "decode");
        verdict.fix.unwrap().change
    };
    assert!(change(&["DecodeJpeg"]).contains("decode_and_crop_jpeg"));
    assert!(!change(&["DecodePng"]).contains("decode_and_crop_jpeg"));
    assert!(!change(&["ParseExampleV2"]).contains("images"));
    // Parsing waits for threads of TensorFlow's, which looks as if it waited for storage.
    for busy in [3.9, 0.5] {
        let mut e = busy_dataflow(&["CSVDatasetV2"], None);
        (e.load.ours, e.load.busy) = (busy, busy);
        let judged = judge(&e);
        assert_eq!(judged.verdict.id, "parse", "{busy}");
        assert!(judged.verdict.fix.unwrap().change.contains("wellfed.csv"));
        assert!(judged.runner_up.iter().chain(&judged.others).all(|other| other.family != "storage"));
    }
}

#[test]
fn three_steps_are_enough_and_two_are_not() {
    let mut e = loading(0, "decode", 0.5, 0.0, 0.5);
    e.steps.steps.truncate(3);
    assert_eq!(said(&e)[0], "serial-loading");
    e.steps.steps.truncate(2);
    assert_eq!(said(&e)[0], "unknown");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// The same of an engine over a store, whatever its counters say.
    #[test]
    fn promises_of_stores_are_bounded(
        bytes in 1e2f64..1e8, time in 1e-4f64..2.0, under_way in 0.01f64..600.0, limit in 1.0f64..512.0,
        connections in 0.0f64..600.0, ahead in 0.0f64..1e9, throttled in 0u32..3, wait in 1e-4f64..0.5, compute in 0.002f64..0.1
    ) {
        let mut e = afar(bytes, time, under_way, limit, connections.floor());
        let requests = e.engine.as_mut().unwrap().requests.as_mut().unwrap();
        (requests.ahead, requests.throttled) = (ahead, f64::from(throttled));
        e.steps.steps.iter_mut().for_each(|step| (step.wait, step.compute) = (wait, compute));
        let judged = judge(&e);
        let ceiling = (wait + compute) / compute;
        for verdict in std::iter::once(&judged.verdict).chain(&judged.runner_up).chain(&judged.others) {
            let Some(gain) = verdict.gain else { continue };
            prop_assert!(gain.low <= gain.factor && gain.factor <= gain.high, "{verdict:?}");
            prop_assert!(gain.factor >= WORTH && gain.factor <= 1.06 * ceiling, "{} {} of {ceiling}", verdict.id, gain.factor);
            prop_assert!(throttled == 0 || verdict.id != "network-latency", "{verdict:?}");
            if let Some(title) = verdict.title.strip_prefix("Too few requests at once: max_pool_connections allows ") {
                prop_assert!(connections < 512.0 && title.starts_with(&format!("{:.0},", connections.floor())), "{title}");
            }
        }
    }

    /// Nothing is promised that the ceiling forbids, no more workers than cores can run, and no interval without its factor.
    #[test]
    fn promises_are_bounded(
        workers in 0i64..9, cpu in 0.0005f64..0.1, blocked in 0.0f64..0.1, compute in 0.002f64..0.1,
        name in prop::sample::select(vec!["decode", "read", "augment", "collate", "network", "python", "decompress"]),
        opens in 0.0f64..32.0, bytes in 0.0f64..1e7, answer in 0.0f64..0.5, body in 0.0f64..0.5, pause in 0.0f64..0.3
    ) {
        let mut e = loading(workers, name, cpu, blocked, compute);
        e.stages.loading[0].waits = Waits { answer, body, pause, ..Waits::default() };
        e.loading.batches.iter_mut().for_each(|batch| (batch.opens, batch.bytes) = (opens, bytes));
        let judged = judge(&e);
        let measured = e.steps.time();
        let ceiling = measured.max(judged.pipeline.as_ref().unwrap().time()) / compute;
        for verdict in std::iter::once(&judged.verdict).chain(&judged.runner_up).chain(&judged.others) {
            let Some(gain) = verdict.gain else { continue };
            prop_assert!(gain.low <= gain.factor && gain.factor <= gain.high, "{verdict:?}");
            prop_assert!(gain.factor >= WORTH && gain.factor <= 1.05 * ceiling, "{} {} of {ceiling}", verdict.id, gain.factor);
            let apply = verdict.fix.as_ref().and_then(|fix| fix.apply.as_ref());
            if let Some(asked) = apply.and_then(|apply| apply.loader.get("num_workers")?.as_f64()) {
                // Those that wait for storage need no core meanwhile.
                let fit = CORES * (1.0 + blocked / cpu);
                prop_assert!(asked <= fit.max(CORES), "{asked} workers, {fit} fit");
            }
        }
    }
}
