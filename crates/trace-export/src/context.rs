//! W3C Trace Context: the header or member `traceparent`.

/// The context that a caller sends along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace; not 0.
    pub trace: u128,
    /// The id of the caller's span; not 0.
    pub span: u64,
    /// Whether the caller may have recorded its span.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Parses a valid `traceparent` of version 00 or later.
    pub fn parse(traceparent: &[u8]) -> Option<Self> {
        let (version, rest) = traceparent.split_at_checked(2)?;
        let (fields, more) = rest.split_at_checked(53)?;
        let ended = more.is_empty() || version != b"00" && more.first() == Some(&b'-');
        let separated = [0, 33, 50].iter().all(|at| fields.get(*at) == Some(&b'-'));
        if !ended || !separated || !is_hex(version) || version == b"ff" {
            return None;
        }
        let trace = u128::from_str_radix(hex(fields.get(1..33)?)?, 16).ok()?;
        let span = u64::from_str_radix(hex(fields.get(34..50)?)?, 16).ok()?;
        let flags = u8::from_str_radix(hex(fields.get(51..53)?)?, 16).ok()?;
        (trace != 0 && span != 0).then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// Lower-case digits only, as the specification requires.
fn is_hex(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn hex(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|_| is_hex(bytes))
}

#[cfg(test)]
mod tests {
    use super::TraceContext;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn valid_contexts_are_parsed() {
        let context = TraceContext {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span: 0x00f0_67aa_0ba9_02b7,
            is_sampled: true,
        };
        assert_eq!(TraceContext::parse(GOOD.as_bytes()), Some(context));
        let later = format!("01{}-more", &GOOD[2..]);
        assert_eq!(TraceContext::parse(later.as_bytes()), Some(context));
        let unsampled = GOOD.replace("-01", "-02");
        let context = TraceContext { is_sampled: false, ..context };
        assert_eq!(TraceContext::parse(unsampled.as_bytes()), Some(context));
    }

    #[test]
    fn invalid_contexts_are_ignored() {
        for bad in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}-more"),
            &format!("01{}more", &GOOD[2..]),
            &GOOD.to_uppercase(),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replacen("00-", "ff-", 1),
            &GOOD.replace("-01", "-0g"),
            &GOOD.replace("-00f", "_00f"),
            &GOOD.replace("4bf9", "+bf9"),
        ] {
            assert_eq!(TraceContext::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
