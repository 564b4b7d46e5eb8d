//! From what was measured to the model's pipeline.

use crate::{
    evidence::{Engine, Evidence, FEWEST, mean, quantile},
    model::{Cost, Pipeline, Stall},
};

/// The pipeline as it is, or nothing if there was no loop worth it.
pub(super) fn of(e: &Evidence) -> Option<Pipeline> {
    let loader = e.loader()?;
    if e.steps.steps.len() < FEWEST {
        return None;
    }
    let cores = e.cores();
    let scaling = if e.machine.scaling > 0.0 {
        (e.machine.scaling * cores / e.machine.cores.max(1.0)).min(cores)
    } else {
        cores
    };
    let mut p = Pipeline {
        cores,
        scaling,
        neighbours: neighbours(e),
        workers: loader.num_workers.max(0) as usize,
        prefetch: loader.prefetch_factor.unwrap_or(2) as usize,
        in_order: loader.in_order,
        restart: e.steps.restart() * e.steps.steps_per_epoch,
        steps_per_epoch: e.steps.steps_per_epoch,
        ..Pipeline::default()
    };
    // CPU times were taken while so many cores were busy; the model wants those of a core with idle neighbours.
    let speed = p.speed(e.load.busy.max(1.0));
    // The main thread waits for a core whenever it wants one, in the step and in taking up a batch.
    let thread = mean(e.steps.steps.iter().map(|step| step.thread_cpu));
    let taking_up = mean(e.steps.steps.iter().map(|step| step.wait_cpu));
    let delay = e.load.main_queued * e.steps.time() * thread / (thread + taking_up).max(1e-12);
    // Threads of the engine are of the same process, and work while the step computes; what they do is not the step's.
    let of_engine = e.engine.as_ref().map_or(0.0, |_| e.beside_the_step() / e.steps.whole().max(1e-12));
    p.step = e
        .steps
        .steps
        .iter()
        .map(|step| {
            let queued = if thread > 0.0 { delay * step.thread_cpu / thread } else { 0.0 };
            let cpu = (step.process_cpu - of_engine * step.compute).max(step.thread_cpu);
            Cost {
                blocked: (step.compute - step.thread_cpu - queued.min(step.compute)).max(0.0),
                cpu: cpu * speed,
                parallel: if step.thread_cpu > 0.0 { (cpu / step.thread_cpu).clamp(1.0, cores) } else { 1.0 },
                bytes: 0.0,
            }
        })
        .collect();
    if e.flow.is_some() {
        dataflow(e, &mut p, speed);
        return Some(p);
    }
    if e.loading.batches.is_empty() {
        without_workers_records(e, &mut p, speed);
        return Some(p);
    }
    // Workers lose time between batches, too. As in making one, a part of it is waiting for a core.
    let (cpu, delay) = (e.loading.mean(|batch| batch.cpu), e.loading.mean(|batch| batch.delay));
    let between = e.loading.gap * cpu / (cpu + delay).max(1e-12);
    let send = if e.loading.in_workers { e.loading.send_cpu.max(between) } else { 0.0 };
    p.make = e
        .loading
        .batches
        .iter()
        .map(|batch| Cost {
            blocked: batch.blocked(),
            cpu: (batch.process_cpu.max(batch.cpu) + send) * speed,
            parallel: batch.parallel(),
            bytes: 0.0,
        })
        .collect();
    let in_next = mean(e.steps.steps.iter().map(|step| step.wait_cpu));
    if e.loading.in_workers {
        p.receive = in_next * speed + WAKE;
        p.stall = stall(e, &p);
    } else {
        // What the loader does around making the batch: sampling indices, and its own Python.
        let around = (in_next - e.loading.mean(|batch| batch.cpu)).max(0.0) * speed;
        p.make.iter_mut().for_each(|cost| cost.cpu += around);
    }
    Some(p)
}

/// How much threads of the step wait for each other because of workers. One that is runnable without a core holds up the others, which
/// spin meanwhile.
fn stall(e: &Evidence, p: &Pipeline) -> Option<Stall> {
    let load = &e.load;
    let step = mean(p.step.iter().map(Cost::alone));
    let parallel = mean(p.step.iter().map(|cost| cost.parallel));
    if parallel < SHARED_OUT || load.training.queued < QUEUED * load.training.cpu || step <= 0.0 {
        return None;
    }
    // What other processes have is not there for the workers, either.
    let by_workers = load.making.cpu / (load.making.cpu + load.foreign).max(1e-12);
    let waited = HOLDS_UP * by_workers * load.training.queued * e.steps.whole();
    let share = (waited / step).min(1.0 - 1.0 / MOST_SPUN);
    Some(Stall { share, crowd: p.crowd(p.time()) })
}

/// Cores that work keeps busy at once from which on it is shared out among threads.
pub(super) const SHARED_OUT: f64 = 1.25;

/// Share of the processor time of the training process that its threads were runnable without a core, from which on they are too many.
pub(super) const QUEUED: f64 = 0.15;

/// Seconds that a step takes longer for each second that a thread of it is runnable without a core. Measured with convolutions, dense
/// layers and embeddings beside workers (`benches/doctor/compose`): gains of sparing workers' work agree best with this.
const HOLDS_UP: f64 = 0.6;

/// How many times as long a step may take for threads that wait for each other: more is not promised. Composed scripts beside a process
/// that computes became 3 to 4 times as fast with one thread; two threads of torch on two cores, 16 times.
pub(super) const MOST_SPUN: f64 = 6.0;

/// tf.data: its nodes' calls are the workers. They are threads of the training process, whose CPU time is theirs and the step's.
fn dataflow(e: &Evidence, p: &mut Pipeline, speed: f64) {
    let Some((flow, heavy)) = e.flow.as_ref().and_then(|flow| Some((flow, flow.heaviest()?))) else { return };
    let thread = mean(e.steps.steps.iter().map(|step| step.thread_cpu));
    let others = (e.load.ours * e.steps.whole() - thread).max(0.0);
    // What a generator takes its node does not count; one thread of Python makes all of its elements.
    let generated = super::dataflow::generated(e);
    let work = if generated { flow.work().max(others) } else { flow.work() };
    let cpu = others.min(work);
    p.workers = match heavy.parallelism.max(1) as usize {
        _ if generated => usize::from(flow.prefetches()),
        calls if flow.prefetches() || calls > 1 => calls,
        _ => 0,
    };
    p.make = vec![Cost { blocked: work - cpu, cpu: cpu * speed, parallel: 1.0, bytes: 0.0 }];
    // Threads of tf.data are not the step's.
    for (cost, step) in p.step.iter_mut().zip(&e.steps.steps) {
        *cost = Cost {
            blocked: (step.compute - step.thread_cpu).max(0.0),
            cpu: step.thread_cpu * speed,
            parallel: 1.0,
            bytes: 0.0,
        };
    }
    // tf.data may put a prefetch at the end by itself (its rewrite `inject_prefetch`), which its model need not show. Then a step takes
    // less than making a batch and computing together.
    if p.workers == 0 {
        let ahead = Pipeline { workers: 1, prefetch: 2, ..p.clone() };
        let measured = e.steps.whole();
        let off = |p: &Pipeline| (p.time() / measured.max(1e-12)).ln().abs();
        if off(&ahead) < off(p) {
            *p = ahead;
        }
    }
    // One call after the other, and the loop waits: then a batch takes as long to make as a step, and what its nodes do not tell of
    // that (handing elements on) is work of the same thread.
    if (p.workers == 1 || generated) && e.steps.wait() > WAITS * e.steps.time() {
        let missing = (e.steps.whole() - p.time()).max(0.0);
        *p = p.with_make(|cost| Cost { cpu: cost.cpu + missing, ..*cost });
    }
}

/// Share of the time from which on a loop waits because batches take as long as steps.
const WAITS: f64 = 0.02;

/// Seconds between a batch being sent and the loop running again: two threads and a process are woken for it. Memory that is shared
/// already does not spare that.
pub(super) const WAKE: f64 = 0.0003;

/// Share of the cores that were in use.
pub(super) fn busy_share(e: &Evidence) -> f64 {
    (e.load.busy / e.machine.cores.max(1.0)).clamp(0.0, 1.0)
}

/// What taking up a batch costs once cores are idle: while they are busy, some batches cost many times what most do.
pub(super) fn receive_on_idle_cores(e: &Evidence, p: &Pipeline) -> f64 {
    if !e.loading.in_workers {
        return p.receive;
    }
    let usual = quantile(e.steps.steps.iter().map(|step| step.wait_cpu), 0.5);
    let idle = p.receive.min(usual * p.speed(e.load.busy.max(1.0)) + WAKE);
    p.receive + (idle - p.receive) * busy_share(e)
}

/// Loaders whose batches no worker of theirs recorded.
fn without_workers_records(e: &Evidence, p: &mut Pipeline, speed: f64) {
    if let Some(engine) = &e.engine {
        // Its threads share the samples of a batch; that each makes whole ones comes to the same.
        p.workers = engine.workers.max(1) as usize;
        p.prefetch = 2;
        let blocked = e.stages.loading.iter().map(|stage| stage.blocked).sum();
        p.make = vec![Cost { blocked, cpu: (engine.work() - blocked) * speed, parallel: 1.0, bytes: 0.0 }];
        if let Some(bytes) = from_afar(e, engine, p) {
            // The engine asks ahead, whatever its threads do: what a store gives, all of them share.
            p.bandwidth = Some(bytes / e.steps.time());
            p.workers = p.workers.max(2);
            p.make.iter_mut().for_each(|cost| (cost.bytes, cost.blocked) = (bytes, 0.0));
        }
        return;
    }
    // What is known is how long the loop waits. Where it waits, a batch takes as long as a step; where it does not, less.
    let time = e.steps.time();
    let waits = e.steps.wait() > WAITS * time;
    let others = e.beside_the_step() / e.steps.whole().max(1e-9);
    let cpu = others * time;
    let make = if waits { time } else { 0.5 * time };
    // As if one worker made batches: with all the cores it used.
    p.workers = 1;
    p.prefetch = 2;
    p.make = vec![Cost {
        blocked: (make - cpu / others.max(1.0)).max(0.0),
        cpu: cpu * speed,
        parallel: others.max(1.0),
        bytes: 0.0,
    }];
}

/// Share of a step that the engine's threads work at most where it is not they who are waited for.
const IDLE: f64 = 0.85;

/// Bytes a batch, if the loop waits for a store that answers later: then batches come as fast as those do.
fn from_afar(e: &Evidence, engine: &Engine, p: &Pipeline) -> Option<f64> {
    let requests = engine.requests.as_ref()?;
    let time = e.steps.time();
    let threads = f64::from(engine.workers.max(1)).min(p.cores);
    let works = mean(p.make.iter().map(|cost| cost.cpu)) / threads.max(1.0);
    (e.steps.wait() > WAITS * time && works < IDLE * time).then_some(requests.bytes_per_batch.max(1.0))
}

/// Threads of others that want to run. Where cores are scarce they get less than they want.
fn neighbours(e: &Evidence) -> f64 {
    let load = &e.load;
    if load.foreign < 0.05 {
        return 0.0;
    }
    let wanted = load.ours + load.queued;
    if load.ours > 0.0 { load.foreign * (wanted / load.ours).clamp(1.0, 8.0) } else { load.foreign }
}
