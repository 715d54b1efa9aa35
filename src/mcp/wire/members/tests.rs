//! Members of objects: kept as sent, each name once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{MAX_MEMBERS, Members, MembersError, Shape, text_of, walk};

fn read(text: &str) -> Members<'_> {
    Members::read(text).unwrap()
}

#[test]
fn a_name_is_found_however_it_was_escaped() {
    let members = read(r#"{"a\u0062c":1,"d":"\ud83d\ude00"}"#);
    assert_eq!(members.get("abc").map(RawValue::get), Some("1"));
    assert_eq!(members.get("d").and_then(text_of).as_deref(), Some("😀"));
    assert!(!members.has("a"));
}

#[test]
fn a_duplicate_name_is_an_error_and_has_no_value() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"\u0061":1,"a":2}"#,
        r#"{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"a":1,"a":1}"#,
        r#"{"a":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"a":1}"#,
    ] {
        let members = read(text);
        assert_eq!(members.error(), Some(MembersError::Duplicate), "{text}");
        assert!(members.has("a") && members.get("a").is_none(), "{text}");
    }
    assert_eq!(read(r#"{"\ud800":1,"\ud800":1}"#).error(), Some(MembersError::Duplicate));
    assert_eq!(read(r#"{"\ud800":1,"\ud801":1}"#).error(), None);
}

#[test]
fn the_number_of_members_is_limited() {
    let of = |count: usize| {
        let members: Vec<_> = (0..count).map(|n| format!("\"{n}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    assert_eq!(read(&of(MAX_MEMBERS)).error(), None);
    assert_eq!(read(&of(MAX_MEMBERS + 1)).error(), Some(MembersError::TooMany));
}

#[test]
fn a_value_that_is_not_an_object_has_no_members() {
    for (text, shape) in [
        ("[1,{\"a\":2}]", Shape::Array),
        ("null", Shape::Scalar),
        ("true", Shape::Scalar),
        ("-1", Shape::Scalar),
        ("1", Shape::Scalar),
        ("1.5", Shape::Scalar),
        ("\"a\"", Shape::Scalar),
        ("{}", Shape::Object),
    ] {
        let members = read(text);
        assert_eq!((members.shape(), members.is_empty()), (shape, true), "{text}");
    }
    assert_eq!(Members::default().shape(), Shape::Absent);
}

#[test]
fn nested_objects_are_taken_apart_in_the_same_pass() {
    let text = r#"{"b":{"c":{"d":1},"b":2},"e":{"c":3}}"#;
    let (mut own, mut b, mut c) = Default::default();
    walk(text, &mut own, &mut [("b", &mut b), ("c", &mut c)]).unwrap();
    assert_eq!(own.get("e").map(RawValue::get), Some(r#"{"c":3}"#));
    assert!(own.has("b") && own.get("b").is_none());
    assert_eq!(b.get("b").map(RawValue::get), Some("2"));
    assert_eq!(c.get("d").map(RawValue::get), Some("1"));
}

#[test]
fn a_name_without_a_text_changes_nothing_about_the_others() {
    let text = r#"{"b":{"d":1,"\ud800":2},"e":3}"#;
    let (mut own, mut b) = Default::default();
    walk(text, &mut own, &mut [("b", &mut b)]).unwrap();
    assert_eq!((own.error(), b.error()), (None, None));
    assert_eq!((own.get("e").map(RawValue::get), b.get("d").map(RawValue::get)), (Some("3"), Some("1")));
}

proptest! {
    #[test]
    fn the_members_are_those_of_the_object(object in prop::collection::btree_map(".{0,6}", 0..1000_i32, 0..20)) {
        let text = serde_json::to_string(&object).unwrap();
        let members = read(&text);
        let found: BTreeMap<_, _> = object
            .keys()
            .filter_map(|name| Some((name.clone(), members.get(name)?.get().parse().ok()?)))
            .collect();
        prop_assert_eq!(found, object);
        prop_assert_eq!(members.error(), None);
    }

    #[test]
    fn the_text_of_a_string_is_what_json_says(text: String) {
        let json = Value::from(text.clone()).to_string();
        let raw: &RawValue = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(text_of(raw), Some(text.into()));
    }
}
