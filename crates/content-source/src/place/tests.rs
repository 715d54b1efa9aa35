//! Places that are refused, what values may be, and what places resolve to.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Place, PlaceText, Variable};
use crate::error::FetchError;
use crate::kind::Kind;
use crate::location::{Format, Location, Segment};

fn path(text: &str) -> Result<Place, String> {
    let text = PlaceText { path: Some(text.to_owned()), ..PlaceText::default() };
    Place::new(text).map_err(|error| error.to_string())
}

/// The path that a place resolves to, joined.
fn resolved(place: &Place, values: &[(&str, &str)]) -> Result<String, FetchError> {
    let Location::Path { path, .. } = place.resolve(values.iter().copied())? else { panic!("{place:?}") };
    let segments: Vec<_> = path.segments.iter().map(Segment::as_str).collect();
    Ok(segments.join("/") + if path.is_directory { "/" } else { "" })
}

#[test]
fn places_that_leave_their_connection_are_refused() {
    for text in [
        "/",
        "/etc/passwd",
        "//host/x",
        "a//b",
        "a//",
        ".",
        "..",
        "./a",
        "a/.",
        "a/./b",
        "a/../b",
        "../a",
        "a/..",
        "%2e%2e/a",
        "%2E%2e/a",
        ".%2e/a",
        "a/%2e",
        "a%2fb",
        "a%2Fb",
        "a%5cb",
        "a%00b",
        "a\0b",
        "a\\b",
        "a?b",
        "a%3Fb",
        "a#b",
        "a%23b",
        "http://host/x",
        "https:x",
        "file:/etc/passwd",
        "x+y.z-1:a",
        "mailto%3Ax",
        "http%3a//host/x",
        "%66ile:/etc/passwd",
        "x%3A{a}",
        "a%",
        "a%2",
        "a%zz",
        "%ff",
        "%c0%af",
        "{}",
        "{+}",
        "{a",
        "a}",
        "{{a}}",
        "{a b}",
        "{/a}",
        "{a*}",
        "{a}//b",
        "{a}/..",
        "..%2f{a}",
        "../{a}",
    ] {
        assert!(path(text).is_err(), "{text}");
    }
}

#[test]
fn relative_places_are_decoded_and_kept_as_written() {
    for (text, expected) in [
        ("", "/"),
        ("a", "a"),
        ("a/", "a/"),
        ("guides/intro.md", "guides/intro.md"),
        ("a%20b/%C3%A4.md", "a b/ä.md"),
        ("%252e%252e/a", "%2e%2e/a"),
        ("...", "..."),
        (".hidden/..x", ".hidden/..x"),
        ("a/b:c", "a/b:c"),
    ] {
        let place = path(text).unwrap();
        assert_eq!(resolved(&place, &[]), Ok(expected.to_owned()), "{text}");
    }
}

#[test]
fn values_stay_within_their_segment() {
    let simple = path("v1/{city}/now").unwrap();
    let nested = path("v1/{+city}").unwrap();
    for value in [
        "", ".", "..", "/", "a/", "/a", "a//b", "a/../b", "../a", "a/..", "./a", "a\\b", "..\\a", "a\0",
        "a/b\0", "a/b\\c",
    ] {
        assert_eq!(resolved(&simple, &[("city", value)]), Err(FetchError::NotFound), "{value:?}");
        assert_eq!(resolved(&nested, &[("city", value)]), Err(FetchError::NotFound), "{value:?}");
        if !value.is_empty() {
            assert!(!simple.admits([("city", value)]) && !nested.admits([("city", value)]), "{value:?}");
        }
    }
    assert!(!simple.admits([("city", "a/b")]) && nested.admits([("city", "a/b"), ("other", "..")]));
    for text in ["{v}", "{+v}", "a/{v}", "a/{+v}", "{v}/", "a/{v}/", "{v}/a"] {
        assert_eq!(resolved(&path(text).unwrap(), &[("v", "")]), Err(FetchError::NotFound), "{text}");
    }
    assert_eq!(resolved(&simple, &[("city", "a/b")]), Err(FetchError::NotFound));
    assert_eq!(resolved(&nested, &[("city", "a/b")]), Ok("v1/a/b".to_owned()));
    assert_eq!(resolved(&simple, &[("city", "%2e%2e")]), Ok("v1/%2e%2e/now".to_owned()));
    assert_eq!(resolved(&simple, &[]), Err(FetchError::NotFound));
    let joined = path("{a}{b}").unwrap();
    assert_eq!(resolved(&joined, &[("a", "x"), ("b", "y")]), Ok("xy".to_owned()));
    let dotted = path(".{a}/x").unwrap();
    assert_eq!(resolved(&dotted, &[("a", "")]), Err(FetchError::NotFound));
    assert_eq!(resolved(&dotted, &[("a", ".")]), Err(FetchError::NotFound));
}

#[test]
fn queries_and_statements_take_values() {
    let query = [("units", "metric"), ("q", "{city},{country}"), ("page", "{page}")];
    let query: BTreeMap<_, _> =
        query.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let place = Place::new(PlaceText { path: Some("x".into()), query, ..PlaceText::default() }).unwrap();
    let Ok(Location::Path { query, .. }) = place.resolve([("city", "a&b=c"), ("country", "de")]) else {
        panic!()
    };
    let expected = [("q", "a&b=c,de"), ("units", "metric")];
    assert_eq!(query, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(place.admits([("city", "a.. b\n?#%2f")]) && place.resolve([("city", "a.. b\n?#%2f")]).is_ok());
    for value in [".", "..", "a/b", "../a", "a\\b", "a\0"] {
        assert!(!place.admits([("city", value)]), "{value:?}");
        assert_eq!(place.resolve([("city", value)]), Err(FetchError::NotFound), "{value:?}");
    }

    let text = PlaceText { statement: Some("@forecast".into()), ..PlaceText::default() };
    let parameters = BTreeMap::from([("city".to_owned(), "../a\\b".to_owned())]);
    let expected = Location::Statement { statement: "@forecast".into(), parameters, format: Format::Json };
    let place = Place::new(text).unwrap();
    assert!(place.admits([("city", "../a\\b")]));
    assert_eq!(place.resolve([("city", "../a\\b")]), Ok(expected));
    assert!(!place.admits([("city", "a\0")]));
    assert_eq!(place.resolve([("city", "a\0")]), Err(FetchError::NotFound));
}

#[test]
fn members_that_do_not_fit_are_refused() {
    let path = || PlaceText { path: Some("a".into()), ..PlaceText::default() };
    let statement = |text: &str| PlaceText { statement: Some(text.into()), ..PlaceText::default() };
    let reference = |text: &str| Some(text.to_owned());
    for (text, expected) in [
        (PlaceText::default(), "path or statement is required, and excludes the other"),
        (
            PlaceText { statement: Some("x".into()), ..path() },
            "path or statement is required, and excludes the other",
        ),
        (PlaceText { format: Some(Format::Csv), ..path() }, "format is only for a statement"),
        (PlaceText { reference: reference("main"), ..statement("x") }, "statement excludes query and ref"),
        (statement(" "), "statement is empty or contains a NUL character"),
        (
            PlaceText { reference: reference("a b"), ..path() },
            "ref is not the name of a branch, tag or commit",
        ),
        (
            PlaceText { query: BTreeMap::from([("q".into(), "{".into())]), ..path() },
            "query has braces that are not {name} or {+name}",
        ),
    ] {
        assert_eq!(Place::new(text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn kinds_have_places_of_their_own() {
    let path = || PlaceText { path: Some("a".into()), ..PlaceText::default() };
    let statement = PlaceText { statement: Some("@a".into()), ..PlaceText::default() };
    let query = PlaceText { query: BTreeMap::from([("a".into(), "b".into())]), ..path() };
    let reference = PlaceText { reference: Some("main".into()), ..path() };
    for (place, kinds) in [
        (path(), &[Kind::Http, Kind::File, Kind::S3, Kind::Git][..]),
        (query, &[Kind::Http]),
        (reference, &[Kind::Git]),
        (statement, &[Kind::Sql]),
    ] {
        let place = Place::new(place).unwrap();
        let accepted: Vec<_> = Kind::ALL.into_iter().filter(|kind| place.check_kind(*kind).is_ok()).collect();
        assert_eq!(accepted, kinds, "{place:?}");
    }
}

#[test]
fn variables_are_named_once_with_their_kind() {
    let place = path("{b}/{a}/{+path}/{a}").unwrap();
    let of = |name, allows_slashes| Variable { name, allows_slashes };
    let expected = [of("a", false), of("b", false), of("path", true)];
    assert_eq!(place.variables().into_iter().collect::<Vec<_>>(), expected);
}

proptest! {
    #[test]
    fn resolved_paths_have_valid_segments_below_the_literal_ones(
        text in "(guides/|a%20b/|\\.)?\\{\\+?v\\}(\\.md|/x|/)?",
        value in "[a./\\\\%\0 -]{0,8}",
    ) {
        let place = path(&text).unwrap();
        if let Ok(Location::Path { path, .. }) = place.resolve([("v", value.as_str())]) {
            for segment in &path.segments {
                let segment = segment.as_str();
                prop_assert!(!segment.is_empty() && segment != "." && segment != "..");
                prop_assert!(!segment.contains(['/', '\\', '\0']));
            }
            if !text.contains("{+") {
                let slashes = text.trim_end_matches('/').matches('/').count();
                prop_assert!(value.is_empty() || path.segments.len() == slashes + 1);
            }
            if let Some((first, _)) = text.split_once("/{") {
                prop_assert_eq!(path.segments[0].as_str(), first.replace("%20", " "));
            }
        }
    }

    #[test]
    fn any_text_is_refused_or_stays_below_the_root(text in "[a./\\\\%2eEfF5c:?#{}+-]{0,12}") {
        if let Ok(place) = path(&text)
            && let Ok(Location::Path { path, .. }) = place.resolve([("a", "x"), ("e", "y")])
        {
            prop_assert!(path.segments.iter().all(|segment| !["", ".", ".."].contains(&segment.as_str())));
        }
    }
}
