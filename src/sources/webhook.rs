//! Webhook signatures: those of inbound webhooks, as Standard Webhooks 1.0.0 defines them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ring::hmac::{HMAC_SHA256, Key, verify};
use time::{Duration, OffsetDateTime};

/// The prefix of a secret, before its base64.
pub(super) const SECRET_PREFIX: &str = "whsec_";
/// The length of a secret in bytes.
pub(super) const SECRET_BYTES: usize = 32;
/// How far the time of a message may be from now.
const TOLERANCE: Duration = Duration::minutes(5);
/// How long a message is remembered: it is valid from five minutes before its time to five minutes after it.
pub(super) const REMEMBERED: Duration = Duration::minutes(10);
/// The maximum length of a message's id.
const MAX_ID_BYTES: usize = 256;
/// The maximum number of signatures of a message: more than the keys that a sender replaces at once.
const MAX_SIGNATURES: usize = 16;

/// What a request says of its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The id of the message.
    pub(super) message: String,
    timestamp: String,
    signatures: Vec<Vec<u8>>,
}

impl Signed {
    /// Reads the headers; `None` if one is missing or malformed, or the time is too far from now.
    pub(super) fn read(headers: &HeaderMap, now: OffsetDateTime) -> Option<Self> {
        let header = |name: &str| {
            let mut values = headers.get_all(name).iter();
            values.next().filter(|_| values.next().is_none())?.to_str().ok()
        };
        let (message, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?);
        let seconds: i64 =
            timestamp.parse().ok().filter(|_| timestamp.bytes().all(|b| b.is_ascii_digit()))?;
        let at = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
        if message.is_empty() || message.len() > MAX_ID_BYTES || (at - now).abs() > TOLERANCE {
            return None;
        }
        let signatures = header("webhook-signature")?.split(' ').take(MAX_SIGNATURES);
        let signatures = signatures.filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok());
        let signatures = signatures.collect();
        Some(Self { message: message.to_owned(), timestamp: timestamp.to_owned(), signatures })
    }

    /// Whether one of the signatures is that of the body under a secret.
    pub(super) fn is_of(&self, body: &[u8], secret: &[u8]) -> bool {
        let key = Key::new(HMAC_SHA256, secret);
        let head = format!("{}.{}.", self.message, self.timestamp);
        let signed = [head.as_bytes(), body].concat();
        self.signatures.iter().any(|signature| verify(&key, &signed, signature).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use time::{Duration, OffsetDateTime};

    use super::Signed;

    /// The example of the specification.
    const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const HEADERS: [(&str, &str); 3] = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];

    fn headers(of: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        of.iter().map(parse).collect()
    }

    fn sent() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_614_265_330).unwrap()
    }

    fn secret() -> Vec<u8> {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.decode(SECRET).unwrap()
    }

    #[test]
    fn example_of_the_specification_is_verified() {
        let signed = Signed::read(&headers(&HEADERS), sent()).unwrap();
        assert_eq!(signed.message, "msg_p5jXN8AQM9LWM0D4loKWxJek");
        assert!(signed.is_of(BODY, &secret()));
        assert!(!signed.is_of(b"{}", &secret()));
        assert!(!signed.is_of(BODY, b"other"));
        let rotated = format!("v1,AAAA v1a,x nonsense {}", HEADERS[2].1);
        let with = |at: usize, value: &str| {
            let mut of = HEADERS.map(|(name, value)| (name, value.to_owned()));
            value.clone_into(&mut of[at].1);
            headers(&of.each_ref().map(|(name, value)| (*name, value.as_str())))
        };
        assert!(Signed::read(&with(2, &rotated), sent()).unwrap().is_of(BODY, &secret()), "one of several");
        for (at, value) in
            [(0, "msg_other"), (2, "v1,AAAA"), (2, "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")]
        {
            let signed = Signed::read(&with(at, value), sent()).unwrap();
            assert!(!signed.is_of(BODY, &secret()), "{value}");
        }
        for (at, value) in [(0, ""), (1, "x"), (1, "-5"), (1, "+1614265330"), (1, "99999999999999999999")] {
            assert_eq!(Signed::read(&with(at, value), sent()), None, "{value}");
        }
    }

    #[test]
    fn time_of_a_message_is_at_most_five_minutes_away() {
        let accepted =
            |seconds| Signed::read(&headers(&HEADERS), sent() + Duration::seconds(seconds)).is_some();
        assert_eq!([-301, -300, 0, 300, 301].map(accepted), [false, true, true, true, false]);
    }

    #[test]
    fn headers_are_required_once() {
        for (missing, _) in HEADERS {
            let mut of = headers(&HEADERS);
            of.remove(missing);
            assert_eq!(Signed::read(&of, sent()), None);
            let mut of = headers(&HEADERS);
            of.append(missing, HeaderValue::from_static("1614265330"));
            assert_eq!(Signed::read(&of, sent()), None);
        }
        let long = "m".repeat(257);
        let of = [("webhook-id", long.as_str()), HEADERS[1], HEADERS[2]];
        assert_eq!(Signed::read(&headers(&of), sent()), None);
    }
}
