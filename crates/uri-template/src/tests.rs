//! Examples of templates that are accepted, matched, expanded and refused.

mod order;
mod properties;

use crate::UriTemplateError as Error;
use crate::{ExpandError, MAX_TEMPLATE_BYTES, UriTemplate, ValueError};

fn template(text: &str) -> UriTemplate {
    UriTemplate::parse(text).unwrap_or_else(|error| panic!("{text} {error}"))
}

fn value_in<'v>(values: &'v [(&str, &str)]) -> impl Fn(&str) -> Option<&'v str> {
    |name| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// Values as `name=value` each, or `None`.
fn read(text: &str, uri: &str) -> Option<String> {
    let template = template(text);
    let values = template.matches(uri)?;
    Some(values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
}

#[test]
fn the_examples_of_rfc_6570_section_1_2_expand_and_match_back() {
    let values = [
        ("var", "value"),
        ("hello", "Hello World!"),
        ("path", "/foo/bar"),
        ("empty", ""),
        ("x", "1024"),
        ("y", "768"),
    ];
    for (text, uri) in [
        // Level 1.
        ("x:{var}", "x:value"),
        ("x:{hello}", "x:Hello%20World%21"),
        // Level 2.
        ("x:{+var}", "x:value"),
        ("x:{+hello}", "x:Hello%20World!"),
        ("x:{+path}/here", "x:/foo/bar/here"),
        ("x:here?ref={+path}", "x:here?ref=/foo/bar"),
        ("x:X{#var}", "x:X#value"),
        ("x:X{#hello}", "x:X#Hello%20World!"),
        // Level 3.
        ("x:map?{x,y}", "x:map?1024,768"),
        ("x:{x,hello,y}", "x:1024,Hello%20World%21,768"),
        ("x:X{.var}", "x:X.value"),
        ("x:X{.x,y}", "x:X.1024.768"),
        ("x:{/var}", "x:/value"),
        ("x:{/var,x}/here", "x:/value/1024/here"),
        ("x:{;x,y}", "x:;x=1024;y=768"),
        ("x:{;x,y,empty}", "x:;x=1024;y=768;empty"),
        ("x:{?x,y}", "x:?x=1024&y=768"),
        ("x:{?x,y,empty}", "x:?x=1024&y=768&empty="),
        ("x:?fixed=yes{&x}", "x:?fixed=yes&x=1024"),
        ("x:{&x,y,empty}", "x:&x=1024&y=768&empty="),
    ] {
        let template = template(text);
        assert_eq!(template.expand(value_in(&values)), Ok(uri.to_owned()), "{text}");
        let expected: Vec<(&str, String)> = template
            .variables()
            .map(|name| (name, value_in(&values)(name).unwrap_or_default().to_owned()))
            .collect();
        assert_eq!(template.matches(uri), Some(expected), "{text}");
    }
}

#[test]
fn ambiguous_examples_of_rfc_6570_are_refused() {
    for list in ["+x,hello,y", "+path,x", "#x,hello,y", "#path,x"] {
        let text = format!("x:{{{list}}}/here");
        assert_eq!(UriTemplate::parse(&text), Err(Error::ReservedList(list.to_owned())));
    }
}

#[test]
fn a_template_is_kept_as_given_with_its_variables_in_order() {
    let text = "FILE:///{b,a}/%7e{/c}{;z.y}{?_q,%41}{#f}";
    let template = template(text);
    assert_eq!((template.as_str(), template.to_string()), (text, text.to_owned()));
    assert_eq!(template.variables().collect::<Vec<_>>(), ["b", "a", "c", "z.y", "_q", "%41", "f"]);
    #[cfg(feature = "serde")]
    assert_eq!(serde_json::to_value(&template).unwrap(), text);
    assert_ne!(template, UriTemplate::parse(&text.to_lowercase()).unwrap());
}

#[test]
fn invalid_templates_are_refused_with_the_reason() {
    let name = |text: &str| Error::Name(text.to_owned());
    let modifier = Error::Modifier("a".to_owned());
    for (text, error) in [
        ("", Error::Scheme),
        ("{+x}", Error::Scheme),
        ("{scheme}://h", Error::Scheme),
        ("x{a}:b", Error::Scheme),
        ("h/{a}", Error::Scheme),
        ("//h/{a}", Error::Scheme),
        ("1x:{a}", Error::Scheme),
        (":{a}", Error::Scheme),
        ("x:{a", Error::Brace),
        ("x:a}", Error::Brace),
        ("x:{{a}}", name("{a")),
        ("x:{}", name("")),
        ("x:{+}", name("")),
        ("x:{a,}", name("")),
        ("x:{a b}", name("a b")),
        ("x:{a-b}", name("a-b")),
        ("x:{a.}", name("a.")),
        ("x:{.a..b}", name("a..b")),
        ("x:{%4}", name("%4")),
        ("x:{\u{e4}}", name("\u{e4}")),
        ("x:{a\0}", name("a\0")),
        ("x:{=a}", Error::Operator('=')),
        ("x:{|a}", Error::Operator('|')),
        ("x:{a:3}", modifier.clone()),
        ("x:{a*}", modifier.clone()),
        ("x:{?a*}", modifier.clone()),
        ("x:{/a*,b}", modifier),
        ("x:{a\n*}", name("a\n*")),
        ("x:{a}/{a}", Error::Repeated("a".to_owned())),
        ("x:{a}{?b,a}", Error::Repeated("a".to_owned())),
        ("x:a b{a}", Error::Character(' ')),
        ("x:\0{a}", Error::Character('\0')),
        ("x:\n{a}", Error::Character('\n')),
        ("x:\u{202e}{a}", Error::Character('\u{202e}')),
        ("x:<{a}>", Error::Character('<')),
        ("x:\\{a}", Error::Character('\\')),
        ("x:%{a}", Error::Percent),
        ("x:%4{a}", Error::Percent),
        ("x:%zz{a}", Error::Percent),
        ("x://[{a}]/", Error::NotAUri),
        ("x:#a#{b}", Error::NotAUri),
        ("x:#a{#b}", Error::NotAUri),
        ("x:/../{a}", Error::DotDot),
        ("x:a/%2E./{a}", Error::DotDot),
    ] {
        assert_eq!(UriTemplate::parse(text), Err(error), "{text:?}");
    }
    let long = format!("x:{{a}}{}", "b".repeat(MAX_TEMPLATE_BYTES - 5));
    assert_eq!(long.len(), MAX_TEMPLATE_BYTES);
    assert!(UriTemplate::parse(&long).is_ok());
    assert_eq!(UriTemplate::parse(&format!("{long}b")), Err(Error::TooLong));
}

#[test]
fn ambiguous_templates_are_refused_with_the_reason() {
    let adjacent = || Error::Adjacent { left: "a".to_owned(), right: "b".to_owned() };
    let between = |literal: &str| Error::Separator {
        left: "a".to_owned(),
        literal: literal.to_owned(),
        right: "b".to_owned(),
    };
    let after = |operator| Error::AfterReserved { name: "a".to_owned(), operator };
    for (text, error) in [
        ("x:{a}{b}", adjacent()),
        ("x:{+a}{b}", adjacent()),
        ("x:{a}{+b}", adjacent()),
        ("x:{?a}{b}", adjacent()),
        ("x:{a}to{b}", between("to")),
        ("x:{a}%2F{b}", between("%2F")),
        ("x:{+a}.{b}", between(".")),
        ("x:{a}-{+b}", between("-")),
        ("x:{+a}{.b}", between(".")),
        ("x:{?a}&c={b}", between("&c=")),
        ("x:{;a}={b}", between("=")),
        ("x:{+a}.c{;b}", between(".c")),
        ("x:{a}-{b}-c{?d}", between("-")),
        ("x:{+a}/{+b}", Error::SecondReserved { first: "a".to_owned(), second: "b".to_owned() }),
        ("x:{+a}{&b}", after('&')),
        ("x:{+a}{;b}", after(';')),
        ("x:{+a}{?c}{&b}", after('&')),
        ("x:{#a}b", Error::AfterFragment("a".to_owned())),
        ("x:{#a}{b}", Error::AfterFragment("a".to_owned())),
        ("x:{#a}{?b}", Error::AfterFragment("a".to_owned())),
    ] {
        assert_eq!(UriTemplate::parse(text), Err(error), "{text}");
    }
}

#[test]
fn matching_uris_yield_their_values() {
    for (text, uri, values) in [
        ("x:y", "x:y", ""),
        ("test://t/{id}/data", "test://t/42/data", "id=42"),
        ("file:///p/{p}/docs/{f}", "file:///p/a/docs/my.notes-2.md", "p=a f=my.notes-2.md"),
        ("mail://in/{who}", "mail://in/bob+1@x.org", "who=bob+1@x.org"),
        ("x:{a}", "x:%E4%BD%A0%2525", "a=\u{4f60}%25"),
        ("f:///{name}.md", "f:///a.b.md", "name=a.b"),
        ("f:///{name}.md{?rev,x}", "f:///a.b.md?x=1", "name=a.b x=1"),
        ("f:///{name}.md{?rev}", "f:///a.b.md", "name=a.b"),
        ("f:///{+path}.md{?rev}", "f:///a.md/b.md?rev=", "path=a.md/b rev="),
        ("f:///{+path}/raw{?rev}", "f:///a?/raw?rev=1", "path=a? rev=1"),
        ("f:///{name}v{;x}/{c}", "f:///avv;x=1/2", "name=av x=1 c=2"),
        ("f:///v{name}v", "f:///vvv", "name=v"),
        ("f:///{name}.{ext}", "f:///a%2Eb.c", "name=a.b ext=c"),
        ("log:{y}-{m}-{d}", "log:2024-05-01", "y=2024 m=05 d=01"),
        ("geo:{lat},{long}", "geo:1.5,-2", "lat=1.5 long=-2"),
        ("geo:{lat,long}/{z}", "geo:1.5,-2/a,b", "lat=1.5 long=-2 z=a,b"),
        ("x:{a}px/{b}", "x:3px-4px/5", "a=3px-4 b=5"),
        ("x:{a}:{b}", "x:1:2", "a=1 b=2"),
        // The values around `{+a}` are found for any of its values.
        ("f:///{+path}", "f:///a/b?c#d,[e]", "path=a/b?c#d,[e]"),
        ("f:///{+path}", "f:///a%2Fb", "path=a/b"),
        ("r:{o}/{r}/{+path}", "r:me/it/a/b", "o=me r=it path=a/b"),
        ("r:{+path}/meta", "r:a/meta/meta", "path=a/meta"),
        ("r:{+path}/{b},{c}", "r:a/b,c/d,e", "path=a/b,c b=d c=e"),
        ("r:{+path}/v{b}", "r:a/v1/v2", "path=a/v1 b=2"),
        ("r:{+path}/v/{b}", "r:a/v/1/v/2", "path=a/v/1 b=2"),
        ("r:{+path}?ref={b}", "r:a?ref=1?ref=2", "path=a?ref=1 b=2"),
        // Parameters are optional.
        ("r:{+path}{?ref}", "r:a/b?ref=main", "path=a/b ref=main"),
        ("r:{+path}{?ref}", "r:a&b/c", "path=a&b/c"),
        ("s:docs{?q,limit}", "s:docs", ""),
        ("s:docs{?q,limit}", "s:docs?limit=5", "limit=5"),
        ("s:docs{?q,limit}", "s:docs?limit=5&q=a+b=c;d", "q=a+b=c;d limit=5"),
        ("s:docs{?q,limit}", "s:docs?q=&limit", "q= limit="),
        ("s:?v=1{&q}", "s:?v=1&q=x", "q=x"),
        ("m:{a}{;b,c}/{d}", "m:1;c=2/3", "a=1 c=2 d=3"),
        ("m:{a}{;b,c}/{d}", "m:1;b;c=2/3", "a=1 b= c=2 d=3"),
        ("m:{a}{;b}{?c}{&d}", "m:1;b=2&d=4", "a=1 b=2 d=4"),
        ("m:{a}{?b}{#c}", "m:1?b=2#3/?&", "a=1 b=2 c=3/?&"),
        ("m:{a}{?b}{#c}", "m:1#", "a=1 c="),
        ("m:{+a}{#c}", "m:1?/#2", "a=1?/ c=2"),
        ("m:a{#c}", "m:a", ""),
    ] {
        assert_eq!(read(text, uri).as_deref(), Some(values), "{text} {uri}");
    }
}

#[test]
fn uris_that_are_not_expansions_do_not_match() {
    for (text, uri) in [
        ("x:y", "x:yz"),
        ("x:y{a}", "X:y1"),
        ("x:%7e{a}", "x:%7E1"),
        ("test://t/{id}/data", "test://t//data"),
        ("test://t/{id}/data", "test://t/1/2/data"),
        ("test://t/{id}/data", "test://t/1/data/"),
        ("test://t/{id}/data", "test://t/data"),
        ("aba:{a}:aba", "aba:aba"),
        ("x:{a}", "x:"),
        ("x:{+a}", "x:"),
        ("x:{a}/{b}", "x:1/"),
        ("x:{/a,b}", "x:/1"),
        ("x:{a}", "x:a?b"),
        ("x:{a}", "x:a#b"),
        ("x:{a}", "x:a b"),
        ("x:{a}", "x:\u{e4}"),
        ("x:{+a}", "x:\u{e4}"),
        // The separator of another value.
        ("log:{y}-{m}-{d}", "log:2024-05-01-x"),
        ("f:///{name}.{ext}", "f:///a.tar.gz"),
        ("x:{a}:{b}", "x:1:2:3"),
        // Octets.
        ("x:{a}", "x:%zz"),
        ("x:{a}", "x:%4"),
        ("x:{a}", "x:%ff"),
        ("x:{a}", "x:%C0%80"),
        ("x:{a}", "x:a%00"),
        ("x:{a}", "x:%0a"),
        ("x:{+a}", "x:%C2%85"),
        // Slashes.
        ("x:{a}", "x:a/b"),
        ("x:{a}", "x:a%2fb"),
        ("x:{?a}", "x:?a=b%2Fc"),
        // Segments `..`.
        ("x:/{a}/b", "x:/../b"),
        ("x:/{a}/b", "x:/%2e%2E/b"),
        ("x:/.{a}/b", "x:/../b"),
        ("x:/.{a}/b", "x:/.%2E/b"),
        ("x:/%2e{a}/b", "x:/%2e%2E/b"),
        ("x:{+a}", "x:.."),
        ("x:{+a}", "x:a/../b"),
        ("x:{+a}", "x:a%2F..%2Fb"),
        ("x:{+a}", "x:a/%2e./b"),
        ("x:{a}", "x:..%5Cb"),
        ("x:{+a}", "x:?/.."),
        ("x:{?a}", "x:?a=.."),
        ("x:{#a}", "x:#../b"),
        // Parameters.
        ("x:{?a,b}", "x:?a=1&a=2"),
        ("x:{?a,b}", "x:?a=1&c=2"),
        ("x:{?a,b}", "x:?a=1?b=2"),
        ("x:{?a,b}", "x:&a=1"),
        ("x:{?a,b}", "x:?"),
        ("x:{?a,b}", "x:?a=1&"),
        ("x:{?a,b}", "x:?A=1"),
        ("x:{?a,b}", "x:?%61=1"),
        ("x:{?a,b}", "x:y?a=1"),
        ("x:{?a,b}", "x:?\u{e4}=1"),
        ("x:{?a}{&b}", "x:&b=1?a=2"),
        ("x:{?a,b}{&c}", "x:?a=1&c=2&b=3"),
        ("x:{;a}{;b}", "x:;b=1;a=2"),
    ] {
        assert_eq!(read(text, uri), None, "{text} {uri}");
    }
}

#[test]
fn any_text_matches_where_it_is_asked_for() {
    for (text, uri, value) in [
        ("x:{v}", "x:a%2Fb", "a/b"),
        ("x:{v}", "x:%2E%2E", ".."),
        ("x:/{v}", "x:/..", ".."),
        ("x:/{+v}/y", "x:/a/../b/y", "a/../b"),
        ("x:{?v}", "x:?v=a%00%0Ab", "a\0\nb"),
    ] {
        let template = template(text);
        assert_eq!(template.matches(uri), None, "{text} {uri}");
        assert_eq!(template.matches_any_text(uri), Some(vec![("v", value.to_owned())]), "{text} {uri}");
    }
    for (text, uri) in [("x:{v}", "x:a/b"), ("x:{v}", "x:%FF"), ("x:{v}", "x:"), ("x:{v}", "y:a")] {
        assert_eq!(template(text).matches_any_text(uri), None, "{text} {uri}");
    }
}

#[test]
fn expansions_percent_encode_separators() {
    let values = [("a", "1-2.3~[4]"), ("b", "%41?&#;"), ("p", "%41/[?&]#;"), ("c", "\u{e4}:@")];
    for (text, uri) in [
        ("x:{a}-{b}", "x:1%2D2.3~%5B4%5D-%2541%3F%26%23%3B"),
        ("x:{b}.x-{a}", "x:%2541%3F%26%23%3B.x-1-2%2E3~%5B4%5D"),
        ("x:{+p}", "x:%2541/%5B?&%5D#;"),
        ("x:{+p}{?c}", "x:%2541/%5B%3F&%5D#;?c=%C3%A4%3A%40"),
        ("x:{+p}{#c}", "x:%2541/%5B?&%5D%23;#%C3%A4:@"),
        ("x:{#p}", "x:#%2541/%5B?&%5D%23;"),
    ] {
        assert_eq!(template(text).expand(value_in(&values)), Ok(uri.to_owned()), "{text}");
    }
}

#[test]
fn invalid_values_are_refused() {
    let name = "a".to_owned();
    let fault = |fault| ExpandError::Value { name: "a".to_owned(), fault };
    for (text, value, error) in [
        ("x:{a}", None, ExpandError::Missing(name.clone())),
        ("x:{/a}", None, ExpandError::Missing(name)),
        ("x:{a}", Some(""), fault(ValueError::Empty)),
        ("x:{+a}", Some(""), fault(ValueError::Empty)),
        ("x:{a}", Some("b/c"), fault(ValueError::Slash)),
        ("x:{?a}", Some("b/c"), fault(ValueError::Slash)),
        ("x:{+a}", Some("b/../c"), fault(ValueError::DotDot)),
        ("x:{a}", Some("..\\c"), fault(ValueError::DotDot)),
        ("x:{#a}", Some("\0"), fault(ValueError::Control)),
        ("x:/.{a}", Some("."), ExpandError::DotDot),
        ("x://h:{a}", Some("b"), ExpandError::NotAUri),
        ("x:{+a}", Some("#b#"), ExpandError::NotAUri),
    ] {
        let expanded = template(text).expand(|_| value);
        assert_eq!(expanded, Err(error), "{text} {value:?}");
    }
}
