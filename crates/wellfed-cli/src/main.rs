//! The binary `wellfed`.

use std::process::ExitCode;

fn main() -> ExitCode {
    u8::try_from(wellfed_cli::run(std::env::args_os())).map_or(ExitCode::FAILURE, ExitCode::from)
}
