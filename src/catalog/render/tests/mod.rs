//! Tests of the renderer: what is allowed, what is refused, and the messages.

mod bombs;
mod property;
mod refusals;
mod renderer;

use super::{RenderError, RenderLimits, Template, UndefinedBehavior, is_variable_name};

/// The arguments that every template here declares.
const DECLARED: [&str; 4] = ["topic", "depth", "id", "unused-name"];

fn rendered(source: &str, values: &[(&str, &str)]) -> Result<String, String> {
    let template = Template::parse(source, &DECLARED).map_err(|error| error.to_string())?;
    template.render(values).map_err(|error| format!("{error:?}"))
}

#[test]
fn a_prompt_renders_the_branch_whose_condition_is_true() {
    let source = "{% if depth == 'deep' %}深入研究{{ topic }}。提供全面摘要。\
                  {% elif depth == 'brief' %}简要介绍{{ topic }}。\
                  {% else %}研究{{ topic }}并提供摘要。{% endif %}";
    let of = |depth| rendered(source, &[("topic", "蜜蜂"), ("depth", depth)]);
    assert_eq!(of("deep").unwrap(), "深入研究蜜蜂。提供全面摘要。");
    assert_eq!(of("brief").unwrap(), "简要介绍蜜蜂。");
    assert_eq!(of("").unwrap(), "研究蜜蜂并提供摘要。");
}

#[test]
fn tojson_escapes_values_in_a_json_body() {
    let source = "{\"id\":{{ id | tojson }},\"data\":{{ ('Data for ID: ' ~ id) | tojson }}}";
    assert_eq!(
        rendered(source, &[("id", "a\"b\\\n</script>\u{1}蜂")]).unwrap(),
        r#"{"id":"a\"b\\\n</script>\u0001蜂","data":"Data for ID: a\"b\\\n</script>\u0001蜂"}"#
    );
}

#[test]
fn allowed_syntax_renders() {
    let values = [("topic", " Bees "), ("depth", "deep")];
    let cases = [
        ("", ""),
        ("plain { text } # 100 %\n", "plain { text } # 100 %\n"),
        ("a\n\n{{ topic }}\n\n", "a\n\n Bees \n\n"),
        ("{# a comment #}{% raw %}{{ topic }}{% endraw %}", "{{ topic }}"),
        ("a  {{- topic | trim -}}  b", "aBeesb"),
        ("{{ topic | upper }}|{{ topic | lower }}|{{ topic | length }}", " BEES | bees |6"),
        ("{{ id | default('none') }}, {{ depth | default('none') }}", "none, deep"),
        ("{{ id | default(topic) | trim | upper }}", "BEES"),
        ("{{ 'a' ~ (topic ~ 1) ~ 2.5 ~ true }}", "a Bees 12.5True"),
        ("{{ (topic ~ depth) | upper ~ 'x' }}", " BEES DEEPx"),
        ("{{ 3 | tojson }} {{ 1.5 | tojson }} {{ true | tojson }} {{ -7 }}", "3 1.5 true -7"),
        ("{{ '<&>' | tojson }}", "\"<&>\""),
        ("{% if depth in ['deep', 'brief'] %}known{% endif %}", "known"),
        ("{% if depth not in ['brief'] and 'ee' in topic %}both{% endif %}", "both"),
        ("{% if not id or 1 < 2 <= 2 %}x{% else %}y{% endif %}", "x"),
        ("{% if topic | trim | length >= 4 %}long{% endif %}", "long"),
        ("{{ id or depth }}", "deep"),
        (
            "{% for x in ['a', topic, 3, -1] %}{{ loop.index }}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
            "1a,2 Bees ,33,4-1",
        ),
        ("{% for x in [] %}never{% endfor %}", ""),
        (
            "{% for a in [1, 2] %}{% for b in ['x', 'y'] %}{{ a }}{{ b }} {% endfor %}{% endfor %}",
            "1x 1y 2x 2y ",
        ),
        ("{% for topic in ['shadow'] %}{{ topic }}{% endfor %}{{ topic }}", "shadow Bees "),
    ];
    for (source, expected) in cases {
        assert_eq!(rendered(source, &values).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn names_of_any_script_are_variables_and_words_of_the_language_are_not() {
    for name in ["topic", "_x1", "主题", "größe", "for"] {
        assert!(is_variable_name(name), "{name}");
        let template = Template::parse(&format!("{{{{ {name} }}}}"), &[name]).unwrap();
        assert_eq!(template.render(&[(name, "value")]).unwrap(), "value", "{name}");
    }
    for name in
        ["", "x-y", "if", "not", "true", "1a", "a b", " a", "a }}{{ a", "a.b", "a|upper", "'a'", "主-题"]
    {
        assert!(!is_variable_name(name), "{name}");
    }
}

#[test]
fn an_omitted_argument_is_the_empty_string() {
    assert_eq!(rendered("[{{ topic }}]{% if topic == '' %}empty{% endif %}", &[]).unwrap(), "[]empty");
}

#[test]
fn values_that_are_not_declared_are_ignored_and_the_later_of_two_counts() {
    let values = [("topic", "first"), ("other", "x"), ("topic", "second"), ("", "y")];
    assert_eq!(rendered("{{ topic }}", &values).unwrap(), "second");
}

#[test]
fn values_are_text_and_nothing_else() {
    for value in
        ["{{ depth }}", "{% if depth %}", "{# gone #}", "{% raw %}", "<b>&'\"</b>", "0", "true", "[1]"]
    {
        let values = [("topic", value), ("depth", "deep")];
        assert_eq!(rendered("<{{ topic }}>", &values).unwrap(), format!("<{value}>"));
        assert_eq!(rendered("{{ topic ~ '' }}", &values).unwrap(), value);
        assert_eq!(rendered("{% if topic %}x{% endif %}", &values).unwrap(), "x");
    }
}

#[test]
fn a_template_renders_again_and_on_many_threads() {
    let template = Template::parse("{{ topic }}-{{ topic | upper }}", &DECLARED).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let template = &template;
            scope.spawn(move || {
                for _ in 0..100 {
                    let value = format!("v{thread}");
                    let expected = format!("v{thread}-V{thread}");
                    assert_eq!(template.render(&[("topic", value)]).unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn the_case_of_no_character_changes_to_more_bytes_than_the_check_counts_on() {
    for character in '\0'..=char::MAX {
        let bytes = character.len_utf8();
        let text = character.to_string();
        assert!(text.to_uppercase().len() <= 3 * bytes, "{character:?}");
        assert!(text.to_lowercase().len() <= 3 * bytes, "{character:?}");
        assert!(serde_json::to_string(&text).unwrap().len() <= 6 * bytes + 2, "{character:?}");
    }
}

#[test]
fn a_template_weighs_its_buffers_and_its_source() {
    assert_eq!(Template::parse("", &DECLARED).unwrap().weight(), 6_144);
    assert_eq!(Template::parse(&"x".repeat(1_000), &DECLARED).unwrap().weight(), 18_144);
}

#[test]
fn the_engine_is_held_by_limits_of_its_own() {
    let mut template = Template::parse("{{ topic }}{{ depth }}", &DECLARED).unwrap();
    assert_eq!(template.environment.fuel(), Some(10_000));
    assert_eq!(template.environment.recursion_limit(), 14);
    assert_eq!(template.environment.undefined_behavior(), UndefinedBehavior::Strict);
    template.environment.set_fuel(Some(4));
    let stopped = template.render(&[("topic", "x")]);
    assert_eq!(stopped, Err(RenderError::Failed("engine ran out of fuel (in template:1)".to_owned())));
}

#[test]
fn the_defaults_are_a_mebibyte_of_text_and_ten_thousand_steps() {
    let limits = RenderLimits { output_bytes: 1_048_576, work_bytes: 33_554_432, fuel: 10_000 };
    assert_eq!(RenderLimits::default(), limits);
}
