//! The outcomes that rows of the audit log have.

/// How streams end.
const ENDS: [&str; 5] =
    ["ended:disconnected", "ended:not_allowed", "ended:session", "ended:shutdown", "ended:superseded"];

/// All others: that it went well, and the names of what went wrong.
const OUTCOMES: [&str; 30] = [
    "ok",
    "agent_disabled",
    "already_exists",
    "forbidden",
    "forbidden_origin",
    "header_mismatch",
    "insufficient_scope",
    "internal",
    "invalid_params",
    "invalid_request",
    "method_not_allowed",
    "method_not_found",
    "not_acceptable",
    "not_found",
    "parse_error",
    "payload_too_large",
    "quota_exceeded",
    "rate_limited",
    "resource_not_found",
    "revision_mismatch",
    "session_not_found",
    "session_required",
    "slug_retired",
    "source_failed",
    "source_timeout",
    "storage_unavailable",
    "unauthenticated",
    "unavailable",
    "unsupported_media_type",
    "unsupported_protocol_version",
];

/// Whether a row may have this outcome.
pub fn is_outcome(name: &str) -> bool {
    OUTCOMES.contains(&name) || ENDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::is_outcome;

    /// The texts of a piece of source.
    fn texts<'a>(source: &'a str, from: &str, to: &str) -> Vec<&'a str> {
        let (_, rest) = source.split_once(from).unwrap();
        let (piece, _) = rest.split_once(to).unwrap();
        piece.split('"').skip(1).step_by(2).collect()
    }

    #[test]
    fn every_fault_and_every_end_of_a_stream_is_an_outcome() {
        let faults = texts(include_str!("../fault.rs"), "pub fn name(&self)", "\n    }\n");
        let counted = texts(include_str!("../../http/meter.rs"), "const OUTCOMES", "];");
        let ends = texts(include_str!("../../mcp/trail.rs"), "event.outcome = match end", "};");
        assert!(faults.len() > 20 && counted.len() > 20 && ends.len() == 4);
        let named = faults.iter().chain(&counted).chain(&ends).filter(|name| **name != "other");
        let missing: Vec<_> = named.filter(|name| !is_outcome(name)).collect();
        assert_eq!(missing, Vec::<&&str>::new());
        assert!(!is_outcome("bogus") && !is_outcome("other") && !is_outcome("ended:bogus"));
    }
}
