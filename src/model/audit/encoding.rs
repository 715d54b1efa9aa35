//! The binary encoding of events: the fields in the order of the table's columns, each as its length in four
//! bytes followed by its value in PostgreSQL's binary format. Specified in `docs/audit.md`.
//!
//! The same bytes are hashed, copied into the table and written to the spill file, so that an event is
//! encoded once.

use std::borrow::Cow;
use std::net::IpAddr;

use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

use super::event::Event;
use crate::model::client_address::ClientAddress;

/// The version of this encoding.
pub const VERSION: i16 = 1;
/// Added to the version of an event that names something hidden from its caller. It says no more, and its fields are the same.
const HIDDEN: i16 = 1;
/// Added to the version of an event that names a connection: its subject has the id of the connection and a space in
/// front, or is the id if there is none.
const CONNECTED: i16 = 2;
/// The highest version.
pub const NEWEST: i16 = VERSION + HIDDEN + CONNECTED;
/// The epoch of PostgreSQL's timestamps.
const EPOCH: OffsetDateTime = datetime!(2000-01-01 00:00 UTC);
const NULL: [u8; 4] = [0xff; 4];
const MICROS_A_DAY: i64 = 86_400_000_000;

/// The version that an event is hashed with.
pub fn version(event: &Event) -> i16 {
    let of = |is: bool, added: i16| if is { added } else { 0 };
    VERSION + of(event.hidden, HIDDEN) + of(event.connection.is_some(), CONNECTED)
}

/// Whether an event of this version names something hidden from its caller.
pub fn is_hidden(version: i16) -> bool {
    (version - VERSION) & HIDDEN != 0
}

/// The connection and the subject of an event of this version.
pub fn connection(version: i16, subject: Option<String>) -> (Option<String>, Option<String>) {
    let is_connected = (version - VERSION) & CONNECTED != 0;
    if !is_connected {
        return (None, subject);
    }
    match subject.as_deref().and_then(|subject| subject.split_once(' ')) {
        Some((connection, subject)) => (Some(connection.to_owned()), Some(subject.to_owned())),
        None => (subject, None),
    }
}

/// Appends the fields of an event, from `at` to `after`; the fields of its position in the chain are not
/// included.
pub fn event(out: &mut Vec<u8>, event: &Event) {
    int8(out, micros(event.at));
    text(out, &event.request);
    optional(out, event.trace, |out, trace| field(out, &trace));
    optional(out, event.tenant, |out, tenant| uuid(out, tenant.0));
    optional(out, event.agent, |out, agent| uuid(out, agent.0));
    optional(out, event.slug.as_deref(), text);
    optional(out, event.actor.principal, |out, principal| uuid(out, principal.0));
    text(out, event.actor.kind.as_str());
    optional(out, event.actor.key, |out, key| uuid(out, key.0));
    address(out, event.client);
    optional(out, event.client_name.as_ref(), |out, client| text(out, &client.name));
    optional(out, event.client_name.as_ref(), |out, client| text(out, &client.version));
    optional(out, event.protocol, text);
    optional(out, event.session, |out, session| uuid(out, session.0));
    text(out, &event.method);
    match (&event.connection, event.subject.as_deref()) {
        (Some(connection), Some(subject)) => text(out, &format!("{connection} {subject}")),
        (Some(connection), None) => text(out, connection.as_str()),
        (None, subject) => optional(out, subject, text),
    }
    text(out, event.outcome.as_str());
    optional(out, event.status, |out, status| field(out, &status.to_be_bytes()));
    unsigned(out, event.micros);
    unsigned(out, event.bytes_in);
    optional(out, event.bytes_out, unsigned);
    optional(out, event.revision, |out, revision| int8(out, revision.0));
    optional(out, event.difference.before, |out, hash| field(out, &hash.0));
    optional(out, event.difference.after, |out, hash| field(out, &hash.0));
}

/// Appends a value preceded by its length.
pub fn field(out: &mut Vec<u8>, value: &[u8]) {
    let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
}

/// Appends a value or NULL.
pub fn optional<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => write(out, value),
        None => out.extend_from_slice(&NULL),
    }
}

/// Appends an eight-byte integer.
pub fn int8(out: &mut Vec<u8>, value: i64) {
    field(out, &value.to_be_bytes());
}

/// Appends a four-byte integer.
pub fn int4(out: &mut Vec<u8>, value: i32) {
    field(out, &value.to_be_bytes());
}

/// Appends a UUID.
pub fn uuid(out: &mut Vec<u8>, value: Uuid) {
    field(out, value.as_bytes());
}

/// Appends text, sanitized by [`line()`].
pub fn text(out: &mut Vec<u8>, value: &str) {
    field(out, line(value).as_bytes());
}

/// Replaces control characters, which PostgreSQL may reject and a terminal may interpret.
pub fn line(value: &str) -> Cow<'_, str> {
    // Every control character begins with one of these bytes. Checking all bytes, which is vectorized, is
    // faster than stopping at the first match.
    let suspicious = |byte: u8| byte < 0x20 || byte == 0x7f || byte == 0xc2;
    if !value.bytes().fold(false, |found, byte| found | suspicious(byte)) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(value.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
}

fn unsigned(out: &mut Vec<u8>, value: u64) {
    int8(out, i64::try_from(value).unwrap_or(i64::MAX));
}

/// Appends an address as text. IPv4 addresses, the common case, bypass the formatting machinery.
fn address(out: &mut Vec<u8>, address: ClientAddress) {
    let ClientAddress::Known(IpAddr::V4(address)) = address else {
        return field(out, address.to_string().as_bytes());
    };
    let start = out.len();
    out.extend_from_slice(&NULL);
    for octet in address.octets() {
        out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
        out.push(b'.');
    }
    out.pop();
    let length = i32::try_from(out.len() - start - NULL.len()).unwrap_or(i32::MAX);
    out[start..start + NULL.len()].copy_from_slice(&length.to_be_bytes());
}

/// Microseconds since 2000-01-01 UTC.
pub fn micros(at: OffsetDateTime) -> i64 {
    i64::try_from((at - EPOCH).whole_microseconds()).unwrap_or(i64::MAX)
}

/// The day of an encoded event, counted from 2000-01-01; `None` if the bytes are not an event.
pub fn day(event: &[u8]) -> Option<i32> {
    let micros = i64::from_be_bytes(event.get(4..12)?.try_into().ok()?);
    i32::try_from(micros.div_euclid(MICROS_A_DAY)).ok()
}

/// The day of a time in microseconds since 2000-01-01 UTC, counted from that day.
pub fn day_of_micros(micros: i64) -> i32 {
    i32::try_from(micros.div_euclid(MICROS_A_DAY)).unwrap_or(if micros < 0 { i32::MIN } else { i32::MAX })
}

/// Splits off the first field: its value, if not NULL, and the remaining bytes. `None` if it is truncated.
pub fn split(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    if *length == NULL {
        return Some((None, rest));
    }
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    let (value, rest) = rest.split_at_checked(length)?;
    Some((Some(value), rest))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::{address, field, text};
    use crate::model::client_address::ClientAddress;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = b"before".to_vec();
        write(&mut out);
        out
    }

    proptest! {
        #[test]
        fn address_is_encoded_as_its_display_form(given: IpAddr) {
            let given = ClientAddress::Known(given);
            let shown = given.to_string();
            prop_assert_eq!(written(|out| address(out, given)), written(|out| field(out, shown.as_bytes())));
        }

        #[test]
        fn control_characters_are_replaced_in_any_position(given in "[a ~é\u{0}\u{1f}\u{7f}\u{80}\u{9f}\u{a0}深]{0,40}") {
            let clean: String = given.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            prop_assert_eq!(written(|out| text(out, &given)), written(|out| field(out, clean.as_bytes())));
        }
    }
}
