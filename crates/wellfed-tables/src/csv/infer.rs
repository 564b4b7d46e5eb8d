//! What types columns have, by their first rows: the least permissive one that all values have, of int32, int64, float32, float64
//! and text, as `make_csv_dataset` chooses. `inf` and `nan` are floats.

use wellfed::source::tables::CsvDType;

use super::number;

/// The least permissive type that has this value.
pub(super) fn of(text: &[u8]) -> CsvDType {
    if number::int32(text).is_some() {
        return CsvDType::Int32;
    }
    if number::int64(text).is_some() {
        return CsvDType::Int64;
    }
    let too_large = |value: f32| value.is_infinite() && number::float64(text).is_some_and(f64::is_finite);
    match number::float32(text) {
        Some(value) if !too_large(value) => CsvDType::Float32,
        Some(_) => CsvDType::Float64,
        None => CsvDType::String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_permissive_type_is_taken() {
        for (text, dtype) in [
            ("1", CsvDType::Int32),
            ("-2147483649", CsvDType::Int64),
            ("9223372036854775808", CsvDType::Float32),
            ("0.1", CsvDType::Float32),
            ("1e39", CsvDType::Float64),
            ("nan", CsvDType::Float32),
            ("-inf", CsvDType::Float32),
            ("1,5", CsvDType::String),
            ("2020-01-01", CsvDType::String),
        ] {
            assert_eq!(of(text.as_bytes()), dtype, "{text}");
        }
        assert!(CsvDType::Int32 < CsvDType::Int64 && CsvDType::Float64 < CsvDType::String);
    }
}
