//! Dates of a table, and the numbers of a stack that they become.

use arrow_schema::{DataType, TimeUnit};
use chrono::{
    DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike,
    format::{Item, Parsed, StrftimeItems, parse},
};
use wellfed::{Error, Result, source::tables::DatePart};

/// How the dates of a column are read.
#[derive(Debug)]
pub(crate) enum Written {
    /// Texts of ISO 8601: a date, or a date and a time with `T` or a space between, with or without an offset.
    Iso,
    /// Texts of another form.
    Format(Vec<Item<'static>>),
    /// Days since 1970.
    Days,
    /// So many units of a second since 1970.
    Units(i64),
}

impl Written {
    /// Of texts: as `format` says, or as of ISO 8601.
    ///
    /// # Errors
    /// [`wellfed::ErrorKind::Config`] if the format is none.
    pub(crate) fn texts(format: Option<&str>) -> Result<Self> {
        let Some(format) = format else { return Ok(Self::Iso) };
        let items = StrftimeItems::new(format).parse_to_owned();
        items.map(Self::Format).map_err(|_| {
            Error::config(format!("{format:?} is no format of dates"))
                .with_hint("it is as of strftime: \"%d/%m/%Y %H:%M\"")
        })
    }

    /// Of numbers of this type; `None`, if they are no dates.
    pub(crate) fn numbers(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Dictionary(_, values) => return Self::numbers(values),
            DataType::Date32 => Self::Days,
            DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => Self::Units(1_000),
            DataType::Timestamp(TimeUnit::Second, _) => Self::Units(1),
            DataType::Timestamp(TimeUnit::Microsecond, _) => Self::Units(1_000_000),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Self::Units(1_000_000_000),
            _ => return None,
        })
    }

    /// A text as a date and a time of UTC; `None`, if it is not of the form.
    pub(crate) fn of_text(&self, text: &str) -> Option<NaiveDateTime> {
        match self {
            Self::Iso => iso(text),
            Self::Format(items) => {
                let mut parsed = Parsed::new();
                parse(&mut parsed, text, items.iter()).ok()?;
                let offset = parsed.offset().unwrap_or(0);
                let local = match parsed.to_naive_datetime_with_offset(offset) {
                    Ok(local) => local,
                    // Without an hour it is a day.
                    Err(_) if parsed.hour_mod_12().is_none() => parsed.to_naive_date().ok()?.into(),
                    Err(_) => return None,
                };
                local.checked_sub_signed(TimeDelta::seconds(offset.into()))
            }
            Self::Days | Self::Units(_) => None,
        }
    }

    /// A number as a date and a time; `None`, if it lies some hundred thousand years away, or dates are texts.
    pub(crate) fn of_number(&self, value: i64) -> Option<NaiveDateTime> {
        let (seconds, nanos) = match self {
            Self::Days => (value.checked_mul(86_400)?, 0),
            Self::Units(units) => {
                let nanos = value.rem_euclid(*units) * (1_000_000_000 / units);
                (value.div_euclid(*units), u32::try_from(nanos).ok()?)
            }
            Self::Iso | Self::Format(_) => return None,
        };
        Some(DateTime::from_timestamp(seconds, nanos)?.naive_utc())
    }
}

/// `2024-02-29`, `2024-02-29T12:30`, `2024-02-29 12:30:15.25+01:00`, and so on.
fn iso(text: &str) -> Option<NaiveDateTime> {
    let (date, rest) = text.trim().split_at_checked(10)?;
    let date = NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?;
    if rest.is_empty() {
        return Some(date.into());
    }
    let time = rest.strip_prefix(['T', 't', ' '])?;
    let (time, offset) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) => (&time[..at], seconds(&time[at..])?),
        None => (time, 0),
    };
    let clock =
        NaiveTime::parse_from_str(time, "%H:%M:%S%.f").or_else(|_| NaiveTime::parse_from_str(time, "%H:%M"));
    date.and_time(clock.ok()?).checked_sub_signed(TimeDelta::seconds(offset))
}

/// Of an offset: `Z`, `+01:00`, `+0100` or `+01`.
fn seconds(offset: &str) -> Option<i64> {
    let (sign, digits) = match offset.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(0),
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let number = |text: &str| text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse::<i64>().ok())?;
    let minutes = if minutes.is_empty() { 0 } else { number(minutes).filter(|m| (0..60).contains(m))? };
    number(hours).filter(|h| (0..24).contains(h)).map(|hours| sign * (hours * 3_600 + minutes * 60))
}

/// One number of a date.
pub(crate) fn part(of: &NaiveDateTime, part: DatePart) -> f64 {
    let whole = match part {
        DatePart::Year => return of.year().into(),
        DatePart::Timestamp => {
            let time = of.and_utc();
            return time.timestamp() as f64 + f64::from(time.timestamp_subsec_nanos()) / 1e9;
        }
        DatePart::Quarter => of.month0() / 3 + 1,
        DatePart::Month => of.month(),
        DatePart::Day => of.day(),
        DatePart::DayOfYear => of.ordinal(),
        DatePart::DayOfWeek => of.weekday().num_days_from_monday(),
        DatePart::Hour => of.hour(),
        DatePart::Minute => of.minute(),
        DatePart::Second => of.second(),
    };
    f64::from(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, written: &Written) -> Option<String> {
        written.of_text(text).map(|time| time.format("%Y-%m-%dT%H:%M:%S%.f").to_string())
    }

    #[test]
    fn texts_of_iso_8601() {
        for (text, expected) in [
            ("2024-02-29", Some("2024-02-29T00:00:00")),
            (" 2024-02-29 ", Some("2024-02-29T00:00:00")),
            ("2024-02-29T12:30", Some("2024-02-29T12:30:00")),
            ("2024-02-29 12:30:15", Some("2024-02-29T12:30:15")),
            ("2024-02-29 12:30:15.250", Some("2024-02-29T12:30:15.250")),
            ("2024-02-29T00:30:00+01:00", Some("2024-02-28T23:30:00")),
            ("2024-02-29T23:30:00-0130", Some("2024-03-01T01:00:00")),
            ("2024-02-29T12:30:15Z", Some("2024-02-29T12:30:15")),
            ("2024-02-29T12:30:15+02", Some("2024-02-29T10:30:15")),
            ("2023-02-29", None),
            ("29/02/2024", None),
            ("2024-02-29T", None),
            ("2024-02-29T25:00", None),
            ("2024-02-29T12:30+1:00", None),
            ("2024-02-29T12:30+99:00", None),
            ("2024-02-29x12:30", None),
            ("", None),
            ("2024-02-2é", None),
        ] {
            assert_eq!(shown(text, &Written::Iso).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn texts_of_other_forms() {
        let of = |format: &str| Written::texts(Some(format)).unwrap();
        let day = of("%d/%m/%Y");
        assert_eq!(shown("1/12/2020", &day).as_deref(), Some("2020-12-01T00:00:00"));
        assert_eq!(shown("2020-12-01", &day), None);
        assert_eq!(shown("1/12/2020 5", &day), None);
        let clock = of("%m/%d/%y %I:%M %p");
        assert_eq!(shown("12/01/20 05:30 PM", &clock).as_deref(), Some("2020-12-01T17:30:00"));
        let zone = of("%Y%m%d %H%M %z");
        assert_eq!(shown("20201201 0030 +0100", &zone).as_deref(), Some("2020-11-30T23:30:00"));
        assert!(Written::texts(Some("%Q")).is_err());
    }

    #[test]
    fn numbers_have_the_unit_of_their_column() {
        let of = |data_type: DataType, value: i64| {
            let time = Written::numbers(&data_type).unwrap().of_number(value);
            time.map(|time| time.format("%Y-%m-%dT%H:%M:%S%.f").to_string())
        };
        let day = Some("1969-12-31T00:00:00".to_owned());
        assert_eq!(of(DataType::Date32, -1), day);
        assert_eq!(of(DataType::Date64, -86_400_000), day);
        assert_eq!(of(DataType::Timestamp(TimeUnit::Second, None), -86_400), day);
        let nanos = of(DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), -1);
        assert_eq!(nanos.as_deref(), Some("1969-12-31T23:59:59.999999999"));
        assert_eq!(of(DataType::Date32, i64::MAX), None);
        assert_eq!(of(DataType::Timestamp(TimeUnit::Second, None), i64::MIN), None);
        for other in
            [DataType::Int64, DataType::Duration(TimeUnit::Second), DataType::Time64(TimeUnit::Nanosecond)]
        {
            assert!(Written::numbers(&other).is_none());
        }
    }

    #[test]
    fn parts_are_those_of_the_calendar() {
        let time = Written::Iso.of_text("2024-12-31T23:59:58.5").unwrap();
        for (which, expected) in [
            (DatePart::Year, 2024.0),
            (DatePart::Quarter, 4.0),
            (DatePart::Month, 12.0),
            (DatePart::Day, 31.0),
            (DatePart::DayOfYear, 366.0),
            (DatePart::DayOfWeek, 1.0),
            (DatePart::Hour, 23.0),
            (DatePart::Minute, 59.0),
            (DatePart::Second, 58.0),
            (DatePart::Timestamp, 1_735_689_598.5),
        ] {
            assert_eq!(part(&time, which), expected, "{which:?}");
        }
    }
}
