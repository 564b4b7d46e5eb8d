//! Answers requests for this crate's transforms on standard input: `benches/audio` compares values and times with torchaudio's.
//!
//! A request is a line `name key=value …` with `n=` and `m=`, numbers of float32 of the first and second signal, which follow as
//! little-endian bytes. An answer is a line `ok <values> <seconds>` with the values behind it, or `error <text>`. With `repeat=` the
//! work is done so many times, and `seconds` is that of the fastest.

#[path = "features/request.rs"]
mod request;
#[path = "features/transforms.rs"]
mod transforms;

use std::{
    error::Error,
    io::{self, BufRead, Read, Write},
    time::Instant,
};

use request::Request;

fn floats(from: &mut impl Read, count: usize) -> io::Result<Vec<f32>> {
    let mut bytes = vec![0; 4 * count];
    from.read_exact(&mut bytes)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

fn answer(request: &Request, signals: [&[f32]; 2]) -> Result<(Vec<f32>, f64), Box<dyn Error>> {
    let mut work = transforms::work(&request.name, request)?;
    let mut values = work(signals)?;
    let mut seconds = f64::INFINITY;
    for _ in 0..request.or("repeat", 0)? {
        let since = Instant::now();
        values = work(signals)?;
        seconds = seconds.min(since.elapsed().as_secs_f64());
    }
    Ok((values, seconds))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let mut line = String::new();
    while from.read_line(&mut line)? > 0 {
        let request = Request::parse(&line);
        let one = floats(&mut from, request.or("n", 0)?)?;
        let other = floats(&mut from, request.or("m", 0)?)?;
        match answer(&request, [&one, &other]) {
            Ok((values, seconds)) => {
                writeln!(to, "ok {} {seconds}", values.len())?;
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                to.write_all(&bytes)?;
            }
            Err(error) => writeln!(to, "error {error}")?,
        }
        to.flush()?;
        line.clear();
    }
    Ok(())
}
