//! Judges kept runs again and prints the reports: `cargo run -p wellfed-doctor --example judge -- DIR…`.
use wellfed_doctor::{diagnose, run_dir::RunDir};
#[allow(clippy::print_stdout)]
fn main() -> std::io::Result<()> {
    for dir in std::env::args().skip(1) {
        let run = RunDir::read(dir.as_ref())?;
        let e = wellfed_doctor::evidence::Evidence::of(&run);
        println!("== {dir}");
        println!(
            "time {:.5} wait {:.5} compute {:.5} restart {:.5} n {}",
            e.steps.time(),
            e.steps.wait(),
            e.steps.compute(),
            e.steps.restart(),
            e.steps.steps.len()
        );
        let l = &e.loading;
        println!(
            "batch wall {:.5} cpu {:.5} pcpu {:.5} delay {:.5} blocked {:.5} collate {:.5} bytes {:.0} disk {:.0} opens {:.1} n {} samples {} send {:.5} {:.5} busy {:.2}",
            l.mean(|b| b.wall),
            l.mean(|b| b.cpu),
            l.mean(|b| b.process_cpu),
            l.mean(|b| b.delay),
            l.mean(|b| b.blocked()),
            l.mean(|b| b.collate),
            l.mean(|b| b.bytes),
            l.mean(|b| b.disk_bytes),
            l.mean(|b| b.opens),
            l.batches.len(),
            l.samples.len(),
            l.send,
            l.send_cpu,
            l.busy
        );
        for s in e.stages.loading.iter().chain(&e.stages.looping) {
            println!(
                "  {} cpu {:.5} blocked {:.5} {}",
                s.name,
                s.cpu,
                s.blocked,
                s.culprits.first().map_or(String::new(), |c| format!(
                    "{} {} <- {}",
                    c.frame.func,
                    c.frame.call,
                    c.call.as_ref().map_or("", |f| f.call.as_str())
                ))
            );
        }
        println!(
            "  looks {} {} gil {:.4} {:.2}",
            e.stages.loading_looks, e.stages.looping_looks, e.stages.gil_late, e.stages.gil_threads
        );
        println!("{:?}", e.load);
        let j = wellfed_doctor::verdict::judge(&e);
        if let Some(p) = &j.pipeline {
            println!(
                "model now {:.5} receive {:.6} scaling {} neighbours {:.2} cores {}",
                p.time(),
                p.receive,
                p.scaling,
                p.neighbours,
                p.cores
            );
        }
        for v in std::iter::once(&j.verdict).chain(&j.runner_up).chain(&j.others) {
            println!("* {} {:?} {}", v.id, v.gain.map(|g| (g.factor, g.low, g.high)), v.title);
            for f in &v.evidence {
                println!("     - {}", f.text);
            }
            if let Some(f) = &v.fix {
                println!("     > {} | {}", f.title, f.change);
            }
            println!("     ^ {}", v.cap);
        }
        println!("{}", diagnose(&run).notes.join("\n"));
    }
    Ok(())
}
