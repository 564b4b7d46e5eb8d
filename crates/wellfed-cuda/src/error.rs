//! The errors of this crate: which call failed, with which code, or what was looked for and not found.

use std::fmt;

use crate::library::Library;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong with a device, its driver or a library. Its text states the fact first; a hint may follow on a
/// line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A shared library was not found, or could not be loaded: each of `tried` is a place and why it is not that.
    Library {
        /// Which one.
        library: Library,
        /// Where it was looked for, in that order.
        tried: Vec<String>,
    },
    /// A library lacks a function that is needed: it is older than what is supported.
    Symbol {
        /// Where the library lies.
        library: String,
        /// The function's name.
        symbol: &'static str,
    },
    /// The driver is older than CUDA 12.0.
    OldDriver {
        /// The CUDA version it supports: 1000 × major + 10 × minor.
        version: u32,
    },
    /// There is no device of this number.
    NoDevice {
        /// The number asked for.
        ordinal: u32,
        /// How many devices the process sees.
        count: u32,
    },
    /// The kernels are not made for a device this old.
    OldDevice {
        /// The device's name.
        name: String,
        /// Its compute capability.
        capability: (u32, u32),
    },
    /// A function of a library failed.
    Call {
        /// The function.
        call: &'static str,
        /// What it returned: of the driver a `CUresult`, of nvJPEG an `nvjpegStatus_t`.
        code: u32,
        /// The code's name (`CUDA_ERROR_ILLEGAL_ADDRESS`).
        name: String,
        /// What the library says of it, and what else is known (the log of the driver's compiler).
        text: String,
    },
    /// There is not enough memory.
    OutOfMemory {
        /// Which memory: that of a device, or the host's, page-locked.
        what: &'static str,
        /// The bytes that were asked for.
        bytes: u64,
        /// The device's bytes that are free, and all of its bytes; `None` of the host's, or if it cannot be told.
        free: Option<(u64, u64)>,
    },
    /// There is no kernel of this name.
    NoKernel {
        /// The name.
        name: String,
    },
    /// A call makes no sense, which the text says with its numbers.
    Argument(String),
}

impl Error {
    /// Whether memory was missing: what a caller may try again with less.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::OutOfMemory { .. })
    }

    fn hint(&self) -> Option<String> {
        match self {
            Error::Library { library, .. } => Some(library.hint().to_owned()),
            Error::OldDriver { .. } => Some(
                "update the NVIDIA driver to 525 or later; it need not be that of the framework's CUDA"
                    .to_owned(),
            ),
            Error::NoDevice { count: 0, .. } => {
                Some("does nvidia-smi list one, and does CUDA_VISIBLE_DEVICES not hide it?".to_owned())
            }
            Error::NoDevice { count, .. } => Some(format!(
                "devices are counted from 0 to {}; CUDA_VISIBLE_DEVICES says which there are",
                count - 1
            )),
            Error::Call { code, call, .. } if call.starts_with("cu") => call_hint(*code).map(str::to_owned),
            Error::OutOfMemory { free: Some(_), .. } => {
                Some("a smaller batch, fewer batches ahead, or other processes off the device".to_owned())
            }
            Error::OutOfMemory { free: None, .. } => {
                Some("fewer batches ahead; containers limit locked memory (`ulimit -l`)".to_owned())
            }
            _ => None,
        }
    }
}

/// What to do about a code of the driver, where that is known.
fn call_hint(code: u32) -> Option<&'static str> {
    Some(match code {
        3 => "CUDA does not survive fork(): start processes by spawn or forkserver",
        34 => "this libcuda is the toolkit's stub for linking: take its folder out of LD_LIBRARY_PATH",
        100 => "does nvidia-smi list a device, and does CUDA_VISIBLE_DEVICES not hide it?",
        700 | 715 | 716 | 717 | 718 | 719 => {
            "the device's context is lost, for the framework, too: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer \
             names the kernel"
        }
        803 => "the driver was updated and its kernel module was not: restart the machine",
        804 => "this device does not support CUDA's compatibility package: update the driver itself",
        _ => return None,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Library { library, tried } => {
                write!(f, "{} was not found; looked for", library.name())?;
                tried.iter().try_for_each(|place| write!(f, "\n  {place}"))?;
            }
            Error::Symbol { library, symbol } => {
                write!(f, "{library} has no function {symbol}: it is too old")?
            }
            Error::OldDriver { version } => write!(
                f,
                "the NVIDIA driver supports CUDA {}.{}, and 12.0 is needed",
                version / 1000,
                version % 1000 / 10
            )?,
            Error::NoDevice { ordinal, count } => {
                write!(f, "there is no CUDA device {ordinal}: {count} are seen")?
            }
            Error::OldDevice { name, capability: (major, minor) } => {
                write!(
                    f,
                    "{name} has compute capability {major}.{minor}, and the kernels need 7.5 or later"
                )?;
            }
            Error::Call { call, code, name, text } => write!(f, "{call} failed: {name} ({code}): {text}")?,
            Error::OutOfMemory { what, bytes, free } => {
                write!(f, "no {what} memory for {bytes} bytes")?;
                if let Some((free, total)) = free {
                    write!(f, ": {free} of {total} bytes are free")?;
                }
            }
            Error::NoKernel { name } => write!(f, "there is no kernel {name}")?,
            Error::Argument(what) => f.write_str(what)?,
        }
        self.hint().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_state_the_fact_with_its_numbers_and_then_the_hint() {
        let error = Error::NoDevice { ordinal: 3, count: 2 };
        assert_eq!(
            error.to_string(),
            "there is no CUDA device 3: 2 are seen\n\
             hint: devices are counted from 0 to 1; CUDA_VISIBLE_DEVICES says which there are"
        );
        let error = Error::OutOfMemory { what: "device", bytes: 1 << 30, free: Some((5, 9)) };
        assert!(
            error
                .to_string()
                .starts_with("no device memory for 1073741824 bytes: 5 of 9 bytes are free\nhint: ")
        );
        assert!(error.is_out_of_memory());
        let error = Error::OldDriver { version: 11_080 };
        assert!(error.to_string().starts_with("the NVIDIA driver supports CUDA 11.8, and 12.0 is needed"));
        let call =
            |code| Error::Call { call: "cuInit", code, name: "NAME".to_owned(), text: "text".to_owned() };
        assert!(
            call(3)
                .to_string()
                .starts_with("cuInit failed: NAME (3): text\nhint: CUDA does not survive fork()")
        );
        assert_eq!(call(1).to_string(), "cuInit failed: NAME (1): text");
    }
}
