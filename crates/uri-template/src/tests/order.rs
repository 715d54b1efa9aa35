//! Specificity and conflicts.

use std::cmp::Ordering;

use super::template;
use crate::{Conflict, ConflictChecker};

#[test]
fn literal_text_then_absence_of_reserved_values_is_more_specific() {
    for (one, other, order) in [
        ("x:ab{a}", "x:a{+a}", Ordering::Greater),
        ("x:a{+a}b", "x:a{a}", Ordering::Greater),
        ("x:{a}", "x:{+a}", Ordering::Greater),
        ("x:{a}/", "x:{/a}", Ordering::Equal),
        ("x:{a},{b}", "x:{c,d}", Ordering::Equal),
        ("x:a{?long,names}", "x:a", Ordering::Equal),
        ("x:a{#f}", "x:{b}", Ordering::Greater),
        ("x:{a}.md{?b}", "x:{a}.m", Ordering::Greater),
    ] {
        let (first, second) = (template(one).specificity(), template(other).specificity());
        assert_eq!(first.cmp(&second), order, "{one} {other}");
    }
}

#[test]
fn equally_specific_templates_with_a_common_uri_conflict() {
    for (one, other, conflict) in [
        ("x:{a}", "x:{b}", true),
        ("x:{a}/", "x:{/b}", false),
        ("x:{a}/y", "x:z/{b}", true),
        ("x:{a}/users/{b}", "x:{a}/posts/{b}", false),
        ("x:{a}/users/{b}", "x:{a}/users/{c}", true),
        ("x:{+a}/users/{b}", "x:{+a}/posts/{b}", false),
        ("x:{a}.md", "x:{b}.rs", false),
        ("x:a{b}", "x:{b}a", true),
        ("x:a{b}", "x:{b}-", true),
        ("x:a{b}", "x:{b}c", true),
        ("x:{a}/b", "x:{+a}/b", false),
        ("x:ab{a}", "x:a{+a}", false),
        ("x:{a}-{b}", "x:{a}.{b}", true),
        ("x:{a}:{b}", "x:{a}/{b}", false),
        ("x:{+a}:{b}", "x:{+a}/{b}", true),
        ("x:{?a}", "x:{?b}", true),
        ("x:{?a}", "x:{#b}", true),
        ("x:{?a}", "x:{b}", false),
        ("x:/{?a}", "x:/{b}", false),
        ("x:{c}{?a}", "x:{b}", true),
        ("x:{c}1{?a}", "x:{b}2{?a}", false),
        ("x:{a}", "x:b", false),
        ("x:1{a}", "x:{a}2", true),
        ("x:{a}%20", "x:{a}%21", false),
        ("x:a%20{a}", "x:{b}aaaa", true),
    ] {
        let (one, other) = (template(one), template(other));
        assert_eq!(one.conflicts_with(&other), conflict, "{one} {other}");
        assert_eq!(other.conflicts_with(&one), conflict, "{other} {one}");
    }
}

#[test]
fn a_thousand_templates_are_compared_and_too_similar_ones_are_refused() {
    let insert_all = |text: &dyn Fn(usize) -> String| {
        let templates: Vec<_> = (0..1_000).map(|n| template(&text(n))).collect();
        let mut checker = ConflictChecker::default();
        templates.iter().try_for_each(|template| checker.insert(template))
    };
    assert_eq!(insert_all(&|n| format!("x://host/{n:04}/{{a}}/{{b}}")), Ok(()));
    assert_eq!(insert_all(&|n| format!("x://{{host}}/{n:04}/{{a}}{{?b,c}}")), Ok(()));
    assert_eq!(insert_all(&|n| format!("x://{{+a}}/of/{n:04}")), Ok(()));
    assert_eq!(insert_all(&|n| format!("x://{}/{{a}}/{{b}}/{n:04}", "long".repeat(100))), Ok(()));
    let tying = |n| if n < 999 { format!("x:{{a}}/{n:03}") } else { "x:{a}0/02{b}".to_owned() };
    assert_eq!(insert_all(&tying), Err(Conflict::With(template("x:{a}/020"))));
    let similar = |n| format!("x:{{+a}}{}/{n:04}{{?q}}", "/a".repeat(200));
    assert_eq!(insert_all(&similar), Err(Conflict::TooSimilar));
}
