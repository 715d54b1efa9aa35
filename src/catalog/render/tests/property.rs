//! Properties of any template and any values: nothing panics, and nothing exceeds the limits.

use proptest::prelude::*;
use proptest::sample::select;

use super::super::{BoundedText, NAME, RenderError, RenderLimits, Template, Value};
use super::DECLARED;

/// Pieces that make up templates, good and bad.
const PIECES: [&str; 84] = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "{{-",
    "-}}",
    "{%-",
    "+%}",
    "if",
    "elif",
    "else",
    "endif",
    "for",
    "endfor",
    "in",
    "not",
    "and",
    "or",
    "is",
    "set",
    "raw",
    "endraw",
    "loop",
    ".index",
    ".last",
    ".x",
    "topic",
    "depth",
    "id",
    "x",
    "y",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "|",
    "~",
    "+",
    "-",
    "*",
    "**",
    "/",
    "//",
    "%",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "=",
    "'",
    "\"",
    "'a'",
    "\"b\"",
    "'\\u0041\\ud83d'",
    "1",
    "-1",
    "2.5",
    "1e9",
    "0x1f",
    "true",
    "none",
    "upper",
    "lower",
    "trim",
    "length",
    "tojson",
    "default",
    "indent",
    "蜂",
    "\n",
    "\r\n",
    " ",
    "\\",
    "\0",
    "é",
    "recursive",
];

/// Small enough to be reached.
const TIGHT: RenderLimits = RenderLimits { output_bytes: 500, work_bytes: 20_000, fuel: 200 };

fn soup() -> impl Strategy<Value = String> {
    prop::collection::vec(select(&PIECES[..]), 0..40).prop_map(|pieces| pieces.join(" "))
}

fn expression() -> impl Strategy<Value = String> {
    let leaf =
        select(&["topic", "depth", "id", "x", "'a'", "'蜂 b'", "''", "3", "-2.5", "true", "loop.index"][..]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 4, |inner| {
        let pair = (inner.clone(), inner.clone());
        let filter =
            select(&["upper", "lower", "trim", "length", "tojson", "default('d')", "default(id)"][..]);
        let operator = select(&["==", "!=", "<", ">=", "and", "or", "~", "~", "in", "not in", "< 3 <="][..]);
        prop_oneof![
            (inner.clone(), filter).prop_map(|(value, filter)| format!("({value}) | {filter}")),
            (pair.clone(), operator)
                .prop_map(|((left, right), operator)| format!("({left}) {operator} ({right})")),
            pair.prop_map(|(left, right)| format!("{left} in [{right}, 'a', topic, 3]")),
            inner.prop_map(|value| format!("not ({value})")),
        ]
    })
}

/// Templates that are mostly valid.
fn template() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[a-z {}%\n]{0,6}",
        expression().prop_map(|value| format!("{{{{ {value} }}}}")),
        expression().prop_map(|value| format!("{{{{- {value} | tojson -}}}}")),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let body = prop::collection::vec(inner, 0..4).prop_map(|parts| parts.concat());
        prop_oneof![
            body.clone(),
            (expression(), body.clone(), expression(), body.clone(), body.clone()).prop_map(
                |(first, a, second, b, c)| {
                    format!("{{% if {first} %}}{a}{{% elif {second} %}}{b}{{% else %}}{c}{{% endif %}}")
                }
            ),
            body.prop_map(|body| format!("{{% for x in ['a', topic, 3, ''] %}}{body}{{% endfor %}}")),
        ]
    })
}

/// Parses and renders; the result must be a refusal or within the limits.
fn hold(source: &str, topic: &str, limits: RenderLimits) -> Result<(), TestCaseError> {
    let values = [("topic", topic), ("depth", "deep")];
    match Template::parse_within(source, &DECLARED, limits).and_then(|template| template.render(&values)) {
        Ok(text) => prop_assert!(text.len() <= limits.output_bytes),
        Err(error @ (RenderError::Failed(_) | RenderError::Busy | RenderError::Late)) => {
            return Err(TestCaseError::fail(format!("{source:?}: {error:?}")));
        }
        Err(_) => {}
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text_is_refused_or_renders_within_its_limits(source in ".{0,60}", topic in ".{0,60}") {
        hold(&source, &topic, RenderLimits::default())?;
        hold(&source, &topic, TIGHT)?;
    }

    #[test]
    fn any_mixture_of_syntax_is_refused_or_renders_within_its_limits(source in soup(), topic in ".{0,60}") {
        hold(&source, &topic, RenderLimits::default())?;
    }

    #[test]
    fn a_template_that_is_accepted_renders_or_passes_its_limits(source in template(), topic in ".{0,60}") {
        hold(&source, &topic, RenderLimits::default())?;
        hold(&source, &topic, TIGHT)?;
    }

    #[test]
    fn no_render_takes_more_steps_than_were_counted(source in template(), topic in "[a-z]{0,5}") {
        if let Ok(template) = Template::parse(&source, &DECLARED) {
            let values = [("topic", &*topic)];
            let given = template.plan.arguments(&values);
            let context = Value::from_pairs(template.plan.names().zip(given));
            let compiled = template.environment.get_template(NAME).unwrap();
            let rendered = compiled.render_captured_to(context, BoundedText::new(1 << 20, 0)).unwrap();
            let (taken, _) = rendered.state().fuel_levels().unwrap();
            prop_assert!(taken <= template.plan.steps, "{} steps, {} counted", taken, template.plan.steps);
        }
    }

    #[test]
    fn a_value_comes_out_as_it_went_in(before in ".{0,20}", after in ".{0,20}", tag in select(&PIECES[..10])) {
        let value = format!("{before}{tag}{after}{{{{ depth }}}}{{% if depth %}}");
        let template = Template::parse("<{{ topic }}|{{ topic ~ '' }}|{{ depth }}>", &DECLARED).unwrap();
        let values = [("topic", &*value), ("depth", "never seen")];
        prop_assert_eq!(template.render(&values).unwrap(), format!("<{value}|{value}|never seen>"));
    }

    #[test]
    fn tojson_gives_json_that_reads_back(value in ".{0,60}") {
        let template = Template::parse("{{ topic | tojson }}", &DECLARED).unwrap();
        let json = template.render(&[("topic", &*value)]).unwrap();
        prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), value);
    }
}
