//! The types of metric families, and the values of their samples.

use std::fmt;

/// The type of a metric family.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Only increases.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
}

/// The value of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    /// A whole number, which a text has with all of its digits.
    Whole(i128),
    /// Anything else.
    Real(f64),
}

impl Value {
    pub(super) fn to_f64(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "Prometheus stores samples as doubles")]
            Self::Whole(number) => number as f64,
            Self::Real(value) => value,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Real(f64::INFINITY) => f.write_str("+Inf"),
            Self::Real(value) => value.fmt(f),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Whole(number as i128)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Whole(number.into())
    }
}

impl From<u8> for Value {
    fn from(number: u8) -> Self {
        Self::Whole(number.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Whole(number.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}
