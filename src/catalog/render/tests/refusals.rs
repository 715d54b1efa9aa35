//! Refusals at registration, and their messages.

use super::super::{RenderError, Template};
use super::{DECLARED, rendered};

const ATTRIBUTE: &str =
    "attributes are not allowed but `loop.index`, `loop.index0`, `loop.first` and `loop.last`";
const BEHIND_IN: &str = "the right side of `in` must be a list like `['a', 'b']`, or a text";
const BEGIN: &str = "a tag `{% … %}` must begin with a statement";
const CALL: &str = "nothing can be called";
const DEFAULT: &str = "the filter `default` takes one argument, like `default('none')`";
const INSIDE: &str = "`~` is allowed in `{{ … }}` only, outside other operators";
const IS: &str = "`is` is not allowed; every argument is defined, compare it with `''`";
const ITEMS: &str = "a list holds texts, numbers, `true`, `false` and names only";
const LIST: &str = "a list is allowed only behind `in`";
const OVER: &str = "a `for` goes over a list written out, like `['a', 'b']`; arguments are text";
const SUBSCRIPT: &str = "`[…]` is not allowed behind a value";

/// Each source is refused on its line, for its reason.
fn refused(source: &str, reason: &str) {
    assert_eq!(rendered(&format!("a\nb\n{source}"), &[]), Err(format!("line 3: {reason}")), "{source}");
}

#[test]
fn statements_that_are_not_on_the_list_are_refused_by_name() {
    for (source, name) in [
        ("{% set x = 1 %}", "set"),
        ("{% set x %}a{% endset %}", "set"),
        ("{% with %}{% endwith %}", "with"),
        ("{% include 'x' %}", "include"),
        ("{% extends 'x' %}", "extends"),
        ("{% import 'x' as y %}", "import"),
        ("{% from 'x' import y %}", "from"),
        ("{% block x %}{% endblock %}", "block"),
        ("{% macro x() %}{% endmacro %}", "macro"),
        ("{% call x() %}{% endcall %}", "call"),
        ("{% filter upper %}x{% endfilter %}", "filter"),
        ("{% autoescape true %}{% endautoescape %}", "autoescape"),
        ("{% do topic() %}", "do"),
        ("{% for x in ['a'] %}{% break %}{% endfor %}", "break"),
    ] {
        let reason =
            format!("the statement `{name}` is not allowed; there are `if`, `elif`, `else` and `for`");
        refused(source, &reason);
    }
}

#[test]
fn blocks_that_do_not_match_are_refused_with_where_they_began() {
    for (source, reason) in [
        ("{% elif topic %}", "`elif` is outside of an `if`"),
        ("{% endif %}", "`endif` ends nothing"),
        ("{% if topic %}{% endfor %}", "`endfor` cannot end the `if` of line 3"),
        ("{% if topic %}\n\n", "this `if` is never ended by `endif`"),
        ("{% for x in [1] %}{% if x %}{% endif %}", "this `for` is never ended by `endfor`"),
        ("{% %}", BEGIN),
        ("{% 'x' %}", BEGIN),
    ] {
        refused(source, reason);
    }
}

#[test]
fn loops_have_one_variable_and_a_list_and_nothing_else() {
    for (source, reason) in [
        ("{% for x in topic %}{% endfor %}", OVER),
        ("{% for x in range(9) %}{% endfor %}", OVER),
        ("{% for x in 'abc' %}{% endfor %}", OVER),
        ("{% for x, y in [1] %}{% endfor %}", "a `for` has one variable"),
        ("{% for x in [1] recursive %}{% endfor %}", "`recursive` is not allowed"),
        ("{% for x in [1] if x %}{% endfor %}", "a `for` takes no condition; put an `if` inside it"),
        ("{% for x in [1] %}{% else %}{% endfor %}", "`else` is outside of an `if`"),
        ("{% for x in [not topic] %}{% endfor %}", ITEMS),
        ("{% for x in [1] %}{{ loop.length }}{% endfor %}", ATTRIBUTE),
        ("{% for x in [1] %}{{ loop }}{% endfor %}", ATTRIBUTE),
        ("{% for x in [1] %}{{ loop.cycle('a') }}{% endfor %}", CALL),
        ("{{ loop.index }}", "`loop` is available inside a `for` only"),
    ] {
        refused(source, reason);
    }
}

#[test]
fn filters_that_are_not_on_the_list_are_refused_by_name() {
    for (source, name) in [
        ("{{ topic | indent(2) }}", "indent"),
        ("{{ topic | format(1) }}", "format"),
        ("{{ topic | replace('a', 'b') }}", "replace"),
        ("{{ topic | join }}", "join"),
        ("{{ topic | safe }}", "safe"),
    ] {
        let list = "there are `default`, `upper`, `lower`, `trim`, `length` and `tojson`";
        refused(source, &format!("the filter `{name}` is not allowed; {list}"));
    }
    for (source, reason) in [
        ("{{ topic | tojson(indent=2) }}", "the filter `tojson` takes no arguments"),
        ("{{ topic | trim('x') }}", "the filter `trim` takes no arguments"),
        ("{{ topic | default }}", DEFAULT),
        ("{{ topic | default('x', true) }}", DEFAULT),
        ("{{ topic | default(value='x') }}", DEFAULT),
        ("{{ topic | default(*['x']) }}", DEFAULT),
    ] {
        refused(source, reason);
    }
}

#[test]
fn there_is_no_arithmetic() {
    for (source, sign) in [
        ("{{ 'a' * 3 }}", "*"),
        ("{{ topic + 'x' }}", "+"),
        ("{{ 3 - 1 }}", "-"),
        ("{{ 3 / 1 }}", "/"),
        ("{{ 3 // 1 }}", "//"),
        ("{{ 3 % 1 }}", "%"),
        ("{{ 3 ** 9 }}", "**"),
    ] {
        refused(source, &format!("`{sign}` is not allowed; there is no arithmetic, and `~` joins texts"));
    }
    for (source, reason) in [
        ("{{ -topic }}", "`-` is allowed before a number only"),
        ("{{ 99999999999999999999 }}", "this number is too large"),
        ("{{ 1e999 }}", "this number is too large"),
    ] {
        refused(source, reason);
    }
}

#[test]
fn expressions_outside_the_allow_list_are_refused_with_advice() {
    for (source, reason) in [
        ("{{ none }}", "`none` is not allowed; an argument not given is `''`"),
        ("{% if topic ~ 'a' == 'a' %}{% endif %}", INSIDE),
        ("{{ not (topic ~ 'a') }}", INSIDE),
        ("{{ topic | default(topic ~ 'a') }}", INSIDE),
        ("{{ topic.x }}", ATTRIBUTE),
        ("{{ topic.upper() }}", CALL),
        ("{{ topic['x'] }}", SUBSCRIPT),
        ("{{ topic[0] }}", SUBSCRIPT),
        ("{{ topic[:3] }}", SUBSCRIPT),
        ("{{ range(9) }}", CALL),
        ("{{ topic() }}", CALL),
        ("{{ ['a'] }}", LIST),
        ("{{ ['a'] | length }}", LIST),
        ("{% if ['a'] == ['a'] %}{% endif %}", LIST),
        ("{% if ['a'] in ['a'] %}{% endif %}", LIST),
        ("{% if topic in [['a']] %}{% endif %}", ITEMS),
        ("{% if topic in [topic | upper] %}{% endif %}", ITEMS),
        ("{% if topic in 3 %}{% endif %}", BEHIND_IN),
        ("{% if 'a' < 'b' in (topic | length) %}{% endif %}", BEHIND_IN),
        ("{% for x in ['a', 3] %}{% if 'a' in x %}{% endif %}{% endfor %}", BEHIND_IN),
        ("{{ (1, 2) }}", "`(…, …)` is not allowed; write a list as `[…]`"),
        ("{{ {'a': 1} }}", "`{…}` is not allowed"),
        ("{{ 'a' if topic else 'b' }}", "`… if … else …` is not allowed; use `{% if … %}`"),
        ("{{ topic is defined }}", IS),
    ] {
        refused(source, reason);
    }
}

#[test]
fn syntax_errors_have_their_line_and_no_internals() {
    let cases = [
        (
            "a\n{{ topic",
            "line 2: the syntax is wrong: unexpected end of input, expected end of variable block",
        ),
        ("{{ }}", "line 1: the syntax is wrong: unexpected end of variable block"),
        (
            "{{ topic topic }}",
            "line 1: the syntax is wrong: unexpected identifier, expected end of variable block",
        ),
        ("\n\n{{ 'abc }}", "line 3: the syntax is wrong: unexpected end of string"),
        ("{{ '\\ud800' }}", "line 1: the syntax is wrong: bad string escape"),
        ("{{ to\u{20ac}pic }}", "line 1: the syntax is wrong: unexpected character"),
        ("{# never ends", "line 1: the syntax is wrong: unexpected end of comment"),
        ("{% raw %}", "line 1: the syntax is wrong: unexpected end of raw block"),
        (
            "{% if topic %}{% else %}{% elif topic %}{% endif %}",
            "line 1: the syntax is wrong: unknown statement elif",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(rendered(source, &[]).unwrap_err(), expected, "{source}");
    }
}

#[test]
fn a_name_that_is_not_declared_is_refused_by_name_and_line() {
    let undeclared = |line, name: &str| Err(RenderError::Undeclared { line, name: name.to_owned() });
    let parsed = |source| Template::parse(source, &DECLARED).map(drop);
    assert_eq!(parsed("{{ topic }}\n{{ tpoic }}"), undeclared(2, "tpoic"));
    assert_eq!(parsed("{% if false and missing %}{% endif %}"), undeclared(1, "missing"));
    assert_eq!(parsed("{% for x in ['a'] %}{% endfor %}{{ x }}"), undeclared(1, "x"));
    assert_eq!(parsed("{{ topic | default(missing) }}"), undeclared(1, "missing"));
    assert_eq!(parsed("{{ self }}"), undeclared(1, "self"));
    assert_eq!(
        parsed(&format!("{{{{ {} }}}}", "n".repeat(5000))),
        undeclared(1, &format!("{}…", "n".repeat(100)))
    );
    assert_eq!(
        undeclared(2, "tpoic").map_err(|error: RenderError| error.to_string()),
        Err::<(), _>(
            "line 2: `tpoic` is not declared; declare it as an argument or correct the name".to_owned()
        )
    );
}
