//! Values that torchaudio 2.11 gave for noise with drawn parameters. `benches/audio/compare.py --freeze` wrote them.

#[path = "../examples/features/request.rs"]
mod request;
#[path = "../examples/features/transforms.rs"]
mod transforms;

use request::Request;

/// Noise between -0.5 and 0.5, exact in float32.
fn formula(samples: usize, first: usize) -> Vec<f32> {
    let number = |i: usize| (i as u32).wrapping_mul(2_654_435_761) >> 8;
    (first..first + samples).map(|i| number(i) as f32 / (1 << 24) as f32 - 0.5).collect()
}

#[test]
fn values_are_torchaudios() {
    let text = include_str!("torchaudio.txt");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() > 60, "{} lines", lines.len());
    for [line, values] in lines.as_chunks().0 {
        let request = Request::parse(line);
        let number = |key: &str| request.get::<usize>(key).unwrap().unwrap();
        let loudness: f32 = request.or("loudness", 1.0).unwrap();
        let one: Vec<f32> = formula(number("n"), 0).into_iter().map(|sample| sample * loudness).collect();
        let other = formula(number("m"), 7_919);
        let mut work =
            transforms::work(&request.name, &request).unwrap_or_else(|error| panic!("{line}: {error}"));
        let found = work([&one, &other]).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(found.len(), number("values"), "{line}");
        let most: f64 = request.or("most", 0.0).unwrap();
        let allowed: f64 = request.or("allowed", 0.0).unwrap();
        for (found, value) in found.iter().step_by(number("stride")).zip(values.split(' ')) {
            let wanted = f32::from_bits(u32::from_str_radix(value, 16).unwrap());
            let off = (f64::from(*found) - f64::from(wanted)).abs();
            assert!(off <= allowed * most, "{line}: {found} for {wanted}");
        }
    }
}
