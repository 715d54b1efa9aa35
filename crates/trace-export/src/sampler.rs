//! Decides which traces are exported.

use crate::context::TraceContext;

/// Traces out of 2⁶⁴: an id below it is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Threshold(u128);

/// A sampler of the OpenTelemetry specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    /// Whether the decision of a trusted caller is followed.
    by_parent: bool,
    own: Threshold,
}

impl Sampler {
    /// Every trace, but those that a trusted caller decided not to sample: the default of the specification.
    pub const DEFAULT: Self = Self { by_parent: true, own: Threshold(1 << 64) };

    /// Reads `OTEL_TRACES_SAMPLER` and its argument.
    ///
    /// # Errors
    /// What is wrong, as a predicate.
    pub(crate) fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        let (by_parent, own) = match name.strip_prefix("parentbased_") {
            Some(own) => (true, own),
            None => (false, name),
        };
        let ratio = match own {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument.unwrap_or("1").parse().unwrap_or(f64::NAN),
            _ => {
                return Err("is not always_on, always_off, traceidratio or one of these behind parentbased_"
                    .to_owned());
            }
        };
        let own = Threshold::of(ratio).ok_or("requires OTEL_TRACES_SAMPLER_ARG to be 0 to 1")?;
        Ok(Self { by_parent, own })
    }

    /// Whether no trace is ever sampled.
    pub fn is_off(self) -> bool {
        !self.by_parent && self.own == Threshold(0)
    }

    /// Whether a trace may be sampled, while it is not known whether the caller is to be trusted.
    pub fn may_sample(self, parent: Option<TraceContext>, random: u64) -> bool {
        self.samples(None, false, random) || parent.is_some() && self.samples(parent, true, random)
    }

    /// Whether a trace is sampled. `random` are bits that no caller can choose; they decide wherever `parent` is not to be
    /// trusted: a stranger's context neither forces a trace nor suppresses one.
    pub fn samples(self, parent: Option<TraceContext>, is_trusted: bool, random: u64) -> bool {
        match parent.filter(|_| is_trusted) {
            Some(parent) if self.by_parent => parent.is_sampled,
            // The lower half of the id, so that all services of a trace decide alike.
            Some(parent) => {
                self.own.includes(u64::try_from(parent.trace & u128::from(u64::MAX)).unwrap_or(0))
            }
            None => self.own.includes(random),
        }
    }
}

impl Threshold {
    fn of(ratio: f64) -> Option<Self> {
        // Of 2³², which is exact in a double: the rest of the precision is not needed.
        let scaled = (ratio * f64::from(u32::MAX)).round();
        (0.0..=f64::from(u32::MAX)).contains(&scaled).then(|| {
            let parts = format!("{scaled:.0}").parse::<u128>().unwrap_or(0);
            Self((parts << 64) / u128::from(u32::MAX))
        })
    }

    fn includes(self, id: u64) -> bool {
        u128::from(id) < self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Sampler, TraceContext};

    fn sampler(name: &str, argument: Option<&str>) -> Sampler {
        Sampler::parse(name, argument).unwrap_or_else(|why| panic!("{name} {why}"))
    }

    #[test]
    fn ratio_is_that_of_random_ids() {
        let tenth = sampler("traceidratio", Some("0.1"));
        // The middles of a thousand equal parts.
        let id = |n: u64| (2 * n + 1) * (u64::MAX / 2_000);
        let sampled = (0..1_000).filter(|n| tenth.samples(None, false, id(*n))).count();
        assert_eq!(sampled, 100);
        assert_eq!(Sampler::parse("parentbased_always_on", None), Ok(Sampler::DEFAULT));
        for id in [0, u64::MAX] {
            assert!(sampler("always_on", None).samples(None, false, id));
            assert!(!sampler("always_off", None).samples(None, false, id));
        }
        assert!(sampler("always_off", None).is_off());
        assert!(!sampler("parentbased_always_off", None).is_off());
    }

    #[test]
    fn context_of_a_stranger_decides_nothing() {
        let parent = |is_sampled| Some(TraceContext { trace: 1, span: 1, is_sampled });
        let by_parent = sampler("parentbased_traceidratio", Some("0.5"));
        let (low, high) = (0, u64::MAX);
        for random in [low, high] {
            assert!(by_parent.samples(parent(true), true, random));
            assert!(!by_parent.samples(parent(false), true, random));
        }
        for is_sampled in [true, false] {
            assert!(by_parent.samples(parent(is_sampled), false, low));
            assert!(!by_parent.samples(parent(is_sampled), false, high));
        }
        for (flag, random, may) in [(true, high, true), (false, high, false), (false, low, true)] {
            assert_eq!(by_parent.may_sample(parent(flag), random), may, "{flag} {random}");
        }
        assert!(by_parent.may_sample(None, low) && !by_parent.may_sample(None, high));
        let by_id = sampler("traceidratio", Some("0.5"));
        assert!(by_id.samples(parent(false), true, high), "by the id of a trusted caller");
        assert!(!by_id.samples(parent(false), false, high));
    }

    #[test]
    fn unknown_samplers_and_ratios_are_refused() {
        for (name, argument) in [
            ("sometimes", None),
            ("parentbased_", None),
            ("traceidratio", Some("2")),
            ("traceidratio", Some("-0.1")),
            ("traceidratio", Some("x")),
            ("traceidratio", Some("NaN")),
        ] {
            assert!(Sampler::parse(name, argument).is_err(), "{name} {argument:?}");
        }
    }
}
