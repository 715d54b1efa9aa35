//! Properties of every template, value and text.

use std::cell::Cell;

use iri_string::spec::UriSpec;
use iri_string::template::UriTemplateStr;
use iri_string::template::simple_context::SimpleContext;
use iri_string::types::UriStr;
use percent_encoding::percent_encode_byte;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::{MAX_TEMPLATE_BYTES, UriTemplate, scan};

type Values = Vec<Option<String>>;

const NAMES: [&str; 8] = ["b", "j", "c.d", "a", "e_f", "i", "g", "h"];

/// Texts in the form of a template, most of them accepted.
fn template_text() -> impl Strategy<Value = String> {
    let literal = select(vec!["/", "-", ".", "/x", "x/", ":", ",", "-x-", "/a.b/", "~", "%20/", ";", "1"]);
    let operator = select(vec!["", "", "", "+", "/", ".", ";", "?", "&", "#"]);
    let piece = (literal, operator, 1..4_usize, prop::bool::weighted(0.25));
    vec(piece, 0..5).prop_map(|pieces| {
        let mut names = NAMES.into_iter();
        let mut text = "x:".to_owned();
        for (literal, operator, count, no_literal) in pieces {
            let count = if matches!(operator, "+" | "#") { 1 } else { count };
            let list: Vec<&str> = names.by_ref().take(count).collect();
            if !no_literal {
                text.push_str(literal);
            }
            if !list.is_empty() {
                text.extend(["{", operator, &list.join(","), "}"]);
            }
        }
        text
    })
}

fn template() -> impl Strategy<Value = UriTemplate> {
    template_text().prop_filter_map("refused", |text| UriTemplate::parse(&text).ok())
}

/// Values with every character that is special in templates or URIs.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab1]{1,3}",
        4 => "[-a.x/:,;?&=#%20~\\[\\]+@!$'()*_ä€\\\\]{0,6}",
        1 => any::<String>(),
    ]
}

fn values() -> impl Strategy<Value = Values> {
    vec(option::weighted(0.9, value()), NAMES.len())
}

fn value_of<'v>(values: &'v Values, name: &str) -> Option<&'v str> {
    NAMES.iter().position(|known| *known == name).and_then(|at| values[at].as_deref())
}

/// The values that the template uses.
fn given(template: &UriTemplate, values: &Values) -> Vec<(String, String)> {
    let value = |name: &str| Some((name.to_owned(), value_of(values, name)?.to_owned()));
    template.variables().filter_map(value).collect()
}

fn expand(template: &UriTemplate, values: &Values) -> Option<(String, Vec<(String, String)>)> {
    Some((template.expand(|name| value_of(values, name)).ok()?, given(template, values)))
}

fn matched(template: &UriTemplate, uri: &str) -> Option<Vec<(String, String)>> {
    Some(template.matches(uri)?.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Expands an accepted template as RFC 6570 says, section 3.2.1 and appendix A.
fn expand_by_rfc(template: &UriTemplate, values: &[(String, String)]) -> String {
    let mut uri = String::new();
    let mut rest = template.as_str();
    while let Some((literal, (expression, after))) =
        rest.split_once('{').and_then(|(literal, rest)| Some((literal, rest.split_once('}')?)))
    {
        uri.push_str(literal);
        rest = after;
        let operator = &expression[..expression.len().min(1)];
        let (first, separator, named, if_empty, reserved) = match operator {
            "+" => ("", ",", false, "", true),
            "#" => ("#", ",", false, "", true),
            "." => (".", ".", false, "", false),
            "/" => ("/", "/", false, "", false),
            ";" => (";", ";", true, "", false),
            "?" => ("?", "&", true, "=", false),
            "&" => ("&", "&", true, "=", false),
            _ => ("", ",", false, "", false),
        };
        let mut lead = first;
        for name in expression.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']).split(',') {
            let Some((_, value)) = values.iter().find(|(known, _)| known == name) else { continue };
            uri.push_str(lead);
            lead = separator;
            if named {
                uri.push_str(name);
                uri.push_str(if value.is_empty() { if_empty } else { "=" });
            }
            push_encoded(value, reserved, &mut uri);
        }
    }
    uri + rest
}

fn push_encoded(value: &str, reserved: bool, uri: &mut String) {
    for (at, byte) in value.bytes().enumerate() {
        let digits = value.as_bytes().get(at + 1..at + 3);
        let is_triplet = byte == b'%' && digits.is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
        let kept = reserved && (b":/?#[]@!$&'()*+,;=".contains(&byte) || is_triplet);
        if kept || byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            uri.push(byte.into());
        } else {
            uri.push_str(percent_encode_byte(byte));
        }
    }
}

/// Expands with another implementation of RFC 6570.
fn expand_with_iri_string(template: &UriTemplate, values: &[(String, String)]) -> String {
    let mut context = SimpleContext::new();
    for (name, value) in values {
        context.insert(name.clone(), value.clone());
    }
    let text = UriTemplateStr::new(template.as_str()).expect("both implementations accept the template");
    text.expand::<UriSpec, _>(&context).expect("expands").to_string()
}

/// The bytes read while matching.
fn work(template: &UriTemplate, uri: &str) -> usize {
    let before = scan::BYTES_READ.get();
    let _ = template.matches(uri);
    scan::BYTES_READ.get() - before
}

/// The bound: five reads of every byte, for any template and URI.
fn allowed(template: &UriTemplate, uri: &str) -> usize {
    5 * (uri.len() + template.as_str().len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn expansions_match_back_to_the_same_values(template in template(), values in values()) {
        if let Some((uri, given)) = expand(&template, &values) {
            prop_assert_eq!(matched(&template, &uri), Some(given), "{} {}", template, uri);
        }
    }

    #[test]
    fn plain_values_expand_as_in_another_implementation(
        template in template(),
        values in vec("[a-z0-9 !:@]{1,5}".prop_map(Some), NAMES.len()),
    ) {
        let given = given(&template, &values);
        let by_rfc = expand_by_rfc(&template, &given);
        let Some((uri, _)) = expand(&template, &values) else {
            // Such as `x:/{/b}:{j}`, where `b` would be the host and `j` the port.
            prop_assert!(UriStr::new(&by_rfc).is_err(), "{} {}", template, by_rfc);
            return Ok(());
        };
        prop_assert_eq!(&uri, &by_rfc);
        prop_assert_eq!(&uri, &expand_with_iri_string(&template, &given));
    }

    /// Another implementation does not encode separators. Its expansion may not match, but never matches other values.
    /// (Except for `{+a}`, where an unencoded `%41` or `?` has its own meaning.)
    #[test]
    fn foreign_expansions_never_match_with_other_values(template in template(), values in values()) {
        if template.as_str().contains("{+") || template.as_str().contains("{#") {
            return Ok(());
        }
        let Some((_, given)) = expand(&template, &values) else { return Ok(()) };
        let uri = expand_by_rfc(&template, &given);
        if let Some(read) = matched(&template, &uri) {
            prop_assert_eq!(read, given, "{} {}", template, uri);
        }
    }

    #[test]
    fn foreign_expansions_of_reserved_values_match_with_the_same_values(
        template in template(),
        values in vec(option::of("[-a.x/:,;&=~+@!$'()*_]{1,6}"), NAMES.len()),
    ) {
        let Some((_, given)) = expand(&template, &values) else { return Ok(()) };
        let uri = expand_by_rfc(&template, &given);
        if let Some(read) = matched(&template, &uri) {
            prop_assert_eq!(read, given, "{} {}", template, uri);
        }
    }

    #[test]
    fn matched_values_expand_and_match_again(
        template in template(),
        values in values(),
        edits in vec((any::<prop::sample::Index>(), "[-a.x/:,;?&=#%20~]?"), 0..4),
    ) {
        let Some((mut uri, _)) = expand(&template, &values) else { return Ok(()) };
        for (at, text) in edits {
            let at = at.index(uri.len() + 1);
            uri.replace_range(at..uri.len().min(at + 1), &text);
        }
        let Some(read) = matched(&template, &uri) else { return Ok(()) };
        let value = |name: &str| read.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        if let Ok(again) = template.expand(value) {
            prop_assert_eq!(matched(&template, &again), Some(read), "{} {} {}", template, uri, again);
        }
    }

    #[test]
    fn equally_specific_templates_that_match_one_uri_conflict(
        one in template(),
        other in template(),
        values in vec(option::weighted(0.9, prop_oneof!["[ab1x]{1,2}", "[-a.x/:,;~%]{1,8}"]), NAMES.len()),
    ) {
        let Some((uri, _)) = expand(&one, &values) else { return Ok(()) };
        if one.specificity() == other.specificity() && other.matches(&uri).is_some() {
            prop_assert!(one.conflicts_with(&other), "{} {} {}", one, other, uri);
            prop_assert!(other.conflicts_with(&one), "{} {} {}", other, one, uri);
        }
        prop_assert!(one.conflicts_with(&one));
    }

    #[test]
    fn any_text_parses_and_matches_without_panic_in_linear_time(
        text in prop_oneof![any::<String>(), "x:[{}+#./;?&,a-c%20:*\u{0}ä-]{0,24}", template_text()],
        uri in prop_oneof![any::<String>(), "x:[a/.?&=;#%20,:ä-]{0,24}"],
    ) {
        if let Ok(template) = UriTemplate::parse(&text) {
            prop_assert!(template.as_str().is_ascii());
            prop_assert!(!text.is_ascii() || template.as_str() == text);
            prop_assert!(work(&template, &uri) <= allowed(&template, &uri), "{} {}", template, uri);
            prop_assert!(UriTemplateStr::new(template.as_str()).is_ok());
        }
    }
}

#[test]
fn enough_generated_templates_are_accepted_and_expand() {
    let (accepted, expanded, by_others, shared) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    let config = ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let tried =
        runner.run(&(template_text(), template(), template(), values()), |(text, one, other, values)| {
            accepted.set(accepted.get() + usize::from(UriTemplate::parse(&text).is_ok()));
            if let Some((uri, given)) = expand(&one, &values) {
                expanded.set(expanded.get() + 1);
                let theirs = expand_by_rfc(&one, &given);
                by_others.set(by_others.get() + usize::from(theirs != uri && one.matches(&theirs).is_some()));
                let ties = one.specificity() == other.specificity() && one != other;
                shared.set(shared.get() + usize::from(ties && other.matches(&uri).is_some()));
            }
            Ok(())
        });
    tried.expect("no value fails");
    let counts = [accepted.get(), expanded.get(), by_others.get(), shared.get()];
    assert!(counts[0] > 500 && counts[1] > 500 && counts[2] > 1 && counts[3] > 1, "{counts:?}");
}

#[test]
fn longest_uris_match_longest_templates_in_linear_time() {
    let (templates, uris) = (long_templates(), long_uris());
    for template in &templates {
        for uri in &uris {
            let bytes_read = work(template, uri);
            assert!(bytes_read <= allowed(template, uri), "{bytes_read} bytes: {template} {uri}");
        }
    }
    assert!(templates.len() * uris.len() > 5_000);
}

/// Templates of about 512 bytes: many values, many parameters, long literals.
fn long_templates() -> Vec<UriTemplate> {
    let repeat = |piece: &dyn Fn(usize) -> String| {
        let mut text = "x:".to_owned();
        for next in (0..).map(piece) {
            if text.len() + next.len() > MAX_TEMPLATE_BYTES {
                break;
            }
            text.push_str(&next);
        }
        text
    };
    let names: Vec<String> = (0..160).map(|at| format!("{at:x}")).collect();
    let list = |operator: &str| format!("x:{{{operator}{}}}", names.join(","));
    let texts = [
        repeat(&|at| format!("{{v{at}}}-")),
        repeat(&|at| format!("{{v{at}}}/a")),
        repeat(&|at| format!("{{v{at}}}{}/", "a".repeat(60))),
        repeat(&|at| format!("{{v{at}}}.a-a/")),
        repeat(&|at| if at == 20 { "/{+p}/".to_owned() } else { format!("{{v{at}}}/a") }),
        repeat(&|at| format!("{{{}v{at}}}", if at == 0 { "+" } else { "?" })),
        repeat(&|at| format!("{{;v{at}}}")),
        repeat(&|at| format!("{{v{at}}}{{;w{at}}}/")),
        list("?"),
        list(";"),
        list("/"),
        list(""),
        format!("x:{{+p}}{}", "/a".repeat(250)),
        format!("x:{}{{+p}}{{#f}}", "a".repeat(490)),
        format!("x:{{?{}}}", "a".repeat(507)),
    ];
    texts.iter().map(|text| super::template(text)).collect()
}

/// URIs of about 2,048 bytes: one unit repeated, and every parameter in reverse order.
fn long_uris() -> Vec<String> {
    let mut uris = Vec::new();
    for unit in [
        "a", "-", "/", "a/", "/a", "a-", ".a-a/", "%41", "%2E%2E/", "../", "?a=a", "&a=a", ";a", "&", ";",
        "=", "#", "[", "\u{e4}", ";1=", "&1=1",
    ] {
        for start in ["x:", "x:?0=", "x:?", "x:;0", "x:/"] {
            for end in ["", "/", "-", "#", "?a=", "/a"] {
                uris.push(format!("{start}{}{end}", unit.repeat(2_040 / unit.len())));
            }
        }
    }
    for count in [1, 60, 160] {
        for (first, next) in [("?", "&"), (";", ";")] {
            let pairs: Vec<String> = (0..count).rev().map(|at| format!("{at:x}=zzzzzzz")).collect();
            uris.push(format!("x:{first}{}", pairs.join(next)));
        }
    }
    uris
}
