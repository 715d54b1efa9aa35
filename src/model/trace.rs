//! The identity of a span of a distributed trace, as it travels between modules and replicas.

use std::fmt;
use std::str::FromStr;

use super::scope::{Revision, Scope};

/// A span, named by its trace and itself. Neither id is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The id of the trace.
    pub trace: u128,
    /// The id of the span.
    pub span: u64,
}

/// The span of a write that is exported, so that the events of its change can link to it. It comes with hints between
/// replicas, which are not authenticated: it decides nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteSpan {
    /// The scope that the write changed.
    pub scope: Scope,
    /// The revision that it made.
    pub revision: Revision,
    /// Its span.
    pub span: SpanContext,
}

/// The text is not a [`SpanContext`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidSpan;

/// 48 hexadecimal digits: the id of the trace, then that of the span.
impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}{:016x}", self.trace, self.span)
    }
}

impl FromStr for SpanContext {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        if text.len() != 48 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidSpan);
        }
        let (trace, span) = text.split_at_checked(32).ok_or(InvalidSpan)?;
        let trace = u128::from_str_radix(trace, 16).map_err(|_| InvalidSpan)?;
        let span = u64::from_str_radix(span, 16).map_err(|_| InvalidSpan)?;
        if trace == 0 || span == 0 { Err(InvalidSpan) } else { Ok(Self { trace, span }) }
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidSpan, SpanContext};

    #[test]
    fn spans_parse_to_themselves() {
        for span in [SpanContext { trace: 1, span: 2 }, SpanContext { trace: u128::MAX, span: u64::MAX }] {
            assert_eq!((span.to_string().len(), span.to_string().parse()), (48, Ok(span)));
        }
        let (zeros, ones) = ("0".repeat(48), "1".repeat(48));
        let mixed = [format!("{}{}", &zeros[..32], &ones[..16]), format!("{}{}", &ones[..32], &zeros[..16])];
        for bad in ["", &ones[..47], &format!("{ones}1"), &format!("+{}", &ones[..47]), &mixed[0], &mixed[1]]
        {
            assert_eq!(bad.parse::<SpanContext>(), Err(InvalidSpan), "{bad}");
        }
    }
}
