//! Signals while a script runs: the doctor outlives it.
//!
//! The terminal sends Ctrl-C to the script as well, so it is only survived; what is sent to the doctor alone, such as
//! SIGTERM, is passed on. A signal that was ignored from the start (by `nohup`) stays ignored.

use std::{
    io,
    mem::MaybeUninit,
    process::{Child, ExitStatus},
    ptr,
    sync::atomic::{AtomicI32, Ordering},
};

/// Signals the terminal sends to all processes of the foreground.
const SURVIVED: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
/// Signals that are meant for the script.
const PASSED_ON: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Process id of the script, 0 while there is none.
static SCRIPT: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the script was there.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// Signals are handled as above until this value is dropped.
#[derive(Debug)]
pub(super) struct Signals(Vec<(libc::c_int, libc::sigaction)>);

extern "C" fn survive(_: libc::c_int) {}

extern "C" fn pass_on(signal: libc::c_int) {
    let script = SCRIPT.load(Ordering::SeqCst);
    if script > 0 {
        // SAFETY: kill(2) may be called in a signal handler and touches no memory of ours. It cannot fail but for a script that
        // has become another user's, so errno of the interrupted thread is left alone but then.
        unsafe { libc::kill(script, signal) };
    } else {
        EARLY.store(signal, Ordering::SeqCst);
    }
}

impl Signals {
    /// Handles signals from now on.
    pub(super) fn handle() -> Self {
        EARLY.store(0, Ordering::SeqCst);
        let mut this = Self(Vec::new());
        for signal in SURVIVED {
            this.set(signal, survive as *const () as libc::sighandler_t);
        }
        for signal in PASSED_ON {
            this.set(signal, pass_on as *const () as libc::sighandler_t);
        }
        // Python ignores this one, which a script would inherit; the standard library sees to SIGPIPE.
        this.set(libc::SIGXFSZ, libc::SIG_DFL);
        this
    }

    fn set(&mut self, signal: libc::c_int, handler: libc::sighandler_t) {
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both pointers are valid; no new action is given.
        if unsafe { libc::sigaction(signal, ptr::null(), old.as_mut_ptr()) } != 0 {
            return;
        }
        // SAFETY: the call succeeded and filled it in.
        let old = unsafe { old.assume_init() };
        if old.sa_sigaction == libc::SIG_IGN && handler != libc::SIG_DFL {
            return;
        }
        let mut new = old;
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        // SAFETY: the pointer is valid, and the handlers above do nothing but what is allowed in a handler.
        if unsafe { libc::sigaction(signal, &raw const new, ptr::null_mut()) } == 0 {
            self.0.push((signal, old));
        }
    }

    /// Ends the script that is waited for, if there is one.
    pub(super) fn kill_script() {
        pass_on(libc::SIGKILL);
    }

    /// Waits for the end of `child`, to which signals are passed on meanwhile.
    pub(super) fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let pid = child.id();
        SCRIPT.store(pid.cast_signed(), Ordering::SeqCst);
        let early = EARLY.swap(0, Ordering::SeqCst);
        if early != 0 {
            pass_on(early);
        }
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            // The script stays a zombie, so that its number is nobody else's until signals are no longer passed on.
            // SAFETY: the pointer is valid for a write of one `siginfo_t`.
            let ended =
                unsafe { libc::waitid(libc::P_PID, pid, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
            if ended == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
        SCRIPT.store(0, Ordering::SeqCst);
        child.wait()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, old) in &self.0 {
            // SAFETY: the pointer is valid, and the action is the one that was there before.
            unsafe { libc::sigaction(*signal, ptr::from_ref(old), ptr::null_mut()) };
        }
    }
}
