//! The command `wellfed`: arguments, detection of data sets, and what is printed.
//!
//! One command, one file. Results go to standard output, all else (what was detected, progress, errors) to standard
//! error. The engine does the work; the Python package runs the same [`run`].

mod advice;
mod bench;
mod cache;
mod convert;
mod demo;
mod detect;
#[cfg(unix)]
mod doctor;
mod index;
mod inspect;
mod jpeg_kind;
mod output;
mod pipeline;
mod process;
mod progress;
mod sounds;
mod top;
mod verify;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

/// Feeds training: photographs on disk to finished tensors.
#[derive(Debug, Parser)]
#[command(name = "wellfed", bin_name = "wellfed", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Bench),
    Cache(cache::Cache),
    Convert(convert::Convert),
    Demo(demo::Demo),
    #[cfg(unix)]
    Doctor(doctor::Doctor),
    Index(index::Index),
    Inspect(inspect::Inspect),
    Top(top::Top),
    Verify(verify::Verify),
}

/// Runs the command that `args` asks for; the first one is the program's name.
///
/// Returns the exit status: 0 if all went well, 1 after an error (printed to standard error) or if
/// `inspect` found bad samples or `verify` a problem, 2 for arguments that
/// make no sense.
pub fn run(args: impl IntoIterator<Item = OsString>) -> i32 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(message) => {
            // Help for a closed pipe is nobody's loss.
            drop(message.print());
            return message.exit_code();
        }
    };
    wellfed_stores::register();
    wellfed_hdf5::register();
    wellfed_tables::register();
    match cli.command {
        Command::Bench(bench) => output::status(bench.run()),
        Command::Cache(cache) => output::status(cache.run()),
        Command::Convert(convert) => output::status(convert.run()),
        Command::Demo(demo) => demo.run(),
        #[cfg(unix)]
        Command::Doctor(doctor) => doctor.run(),
        Command::Index(index) => output::status(index.run()),
        Command::Inspect(inspect) => output::status(inspect.run()),
        Command::Top(top) => output::status(top.run()),
        Command::Verify(verify) => output::status(verify.run()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_defined() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
