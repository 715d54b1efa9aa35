//! Templates and values of hostile authors and callers, and where they are refused.

use std::time::{Duration, Instant};

use super::super::limits::{MAX_BLOCKS, MAX_BRACKETS, MAX_BRANCHES, MAX_OPERATORS};
use super::super::{MAX_SOURCE_BYTES, RenderError, RenderLimits, Template};
use super::DECLARED;

/// Half of the stack that threads have by default.
const SMALL_STACK: usize = 1 << 20;

fn refusal(source: &str) -> RenderError {
    Template::parse(source, &DECLARED).map(drop).unwrap_err()
}

/// Twenty-seven doublings: they made 2.6 GB within 10,000 units of fuel.
fn doublings() -> String {
    format!("{{% set x = 'aaaaaaaaaaaaaaaa' %}}{}{{{{ x }}}}", "{% set x = x ~ x %}".repeat(27))
}

fn nested_loops(levels: usize, items: usize, body: &str) -> String {
    let open = |level| format!("{{% for x{level} in [{}] %}}", "1,".repeat(items));
    let opened: String = (0..levels).map(open).collect();
    format!("{opened}{body}{}", "{% endfor %}".repeat(levels))
}

fn nested(open: &str, inner: &str, close: &str, levels: usize) -> String {
    format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
}

fn on_a_small_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(SMALL_STACK);
        thread.spawn_scoped(scope, run).unwrap().join().unwrap()
    })
}

#[test]
fn doublings_and_blow_up_filters_are_refused_when_registered() {
    assert_eq!(
        refusal(&doublings()).to_string(),
        "line 1: the statement `set` is not allowed; there are `if`, `elif`, `else` and `for`"
    );
    assert_eq!(
        refusal("{{ 'x' | indent(500000000) }}").to_string(),
        "line 1: the filter `indent` is not allowed; \
         there are `default`, `upper`, `lower`, `trim`, `length` and `tojson`"
    );
    assert_eq!(
        refusal("{{ 'x' * 500000000 }}").to_string(),
        "line 1: `*` is not allowed; there is no arithmetic, and `~` joins texts"
    );
}

#[test]
fn a_source_that_is_too_long_is_refused_unread() {
    let source = "{{ topic }}".repeat((1 << 20) / 11);
    assert_eq!(refusal(&source), RenderError::SourceTooLong { bytes: source.len() });
    assert_eq!(refusal(&"x".repeat(MAX_SOURCE_BYTES + 1)), RenderError::SourceTooLong { bytes: 65_537 });
    Template::parse(&"x".repeat(MAX_SOURCE_BYTES), &DECLARED).unwrap();
}

fn tag(inner: &str) -> String {
    format!("{{{{ {inner} }}}}")
}

/// Brackets within each other, closed and open.
fn brackets(levels: usize) -> [String; 7] {
    [
        nested("(", "topic", ")", levels),
        nested("[", "", "]", levels),
        nested("{1:", "1", "}", levels),
        "(".repeat(levels),
        format!("topic{}", nested("[topic", "", "]", levels)),
        format!("topic{}", nested("|default(topic", "", ")", levels)),
        nested("'a' ~ ('b' ~ topic|trim|upper ~ ", "topic", ")", levels),
    ]
    .map(|inner| tag(&inner))
}

/// Syntax that nests the engine a level deeper without a bracket.
fn chains(levels: usize) -> [String; 9] {
    [
        "not ".repeat(levels) + "topic",
        "- ".repeat(levels) + "1",
        "topic".to_owned() + &" ~ topic".repeat(levels),
        "topic".to_owned() + &"|upper".repeat(levels),
        "topic".to_owned() + &".x".repeat(levels),
        "topic".to_owned() + &"()".repeat(levels / 2),
        "topic".to_owned() + &" if 1 else 1".repeat(levels / 2),
        "topic".to_owned() + &" and 1".repeat(levels),
        "topic".to_owned() + &" < 1".repeat(levels),
    ]
    .map(|inner| tag(&inner))
}

fn too_many(limit: usize, what: &str) -> String {
    format!("line 1: at most {limit} {what} are allowed; make the template simpler")
}

#[test]
fn expressions_that_nest_too_deep_are_refused_without_a_stack() {
    for levels in [MAX_BRACKETS + 1, 1_000, 10_000] {
        for source in brackets(levels) {
            let refused = on_a_small_stack(|| refusal(&source)).to_string();
            let expected = [
                too_many(MAX_BRACKETS, "brackets within each other"),
                RenderError::SourceTooLong { bytes: source.len() }.to_string(),
            ];
            assert_eq!(refused, expected[usize::from(source.len() > MAX_SOURCE_BYTES)], "{}", &source[..20]);
        }
    }
    for levels in [2 * MAX_OPERATORS + 2, 5_000] {
        for source in chains(levels) {
            let refused = on_a_small_stack(|| refusal(&source)).to_string();
            let expected = too_many(MAX_OPERATORS, "operators, filters and brackets in one tag");
            assert_eq!(refused, expected, "{}", &source[..20]);
        }
    }
    // Ten thousand parentheses fit into a source, and do not reach the parser.
    assert!(brackets(10_000)[0].len() < MAX_SOURCE_BYTES);
}

#[test]
fn blocks_that_nest_too_deep_are_refused_without_a_stack() {
    let too_deep = too_many(MAX_BLOCKS, "blocks within each other");
    for levels in [MAX_BLOCKS + 1, 2_000] {
        for source in [
            nested("{%if 1%}", "", "{%endif%}", levels),
            nested("{%for x in[1]%}", "", "{%endfor%}", levels),
            "{%if 1%}".repeat(levels),
        ] {
            assert_eq!(on_a_small_stack(|| refusal(&source)).to_string(), too_deep, "{}", &source[..10]);
        }
    }
    let open = "{%if\n1%}".repeat(MAX_SOURCE_BYTES / 9);
    assert_eq!(on_a_small_stack(|| refusal(&open)).to_string(), too_deep.replace("line 1", "line 13"));
    let ifs = nested("{%if 1%}", "", "{%endif%}", 10_000);
    assert_eq!(refusal(&ifs), RenderError::SourceTooLong { bytes: 170_000 });
    for branches in [MAX_BRANCHES + 1, 5_000] {
        let source = format!("{{% if 1 %}}{}{{% endif %}}", "{%elif 1%}".repeat(branches));
        let too_many = too_many(MAX_BRANCHES, "`elif` in an `if` and those around it");
        assert_eq!(on_a_small_stack(|| refusal(&source)).to_string(), too_many);
    }
}

#[test]
fn the_deepest_that_reaches_the_parser_needs_half_a_stack() {
    let blocks = |inner: &str| {
        let before = "{% elif depth %}".repeat(MAX_BRANCHES - 1);
        let branches = format!("{{% if depth %}}{before}{{% elif not depth %}}{inner}{{% endif %}}");
        nested("{% for x in [1] %}", &branches, "{% endfor %}", MAX_BLOCKS - 1)
    };
    let expressions = brackets(MAX_BRACKETS).into_iter().chain(chains(MAX_OPERATORS));
    for inner in expressions {
        // Most are refused after parsing; the test is that nothing overflows.
        let source = blocks(&inner);
        on_a_small_stack(|| {
            Template::parse(&source, &DECLARED).map(|template| template.render(&[("topic", "x")])).ok()
        });
    }
    let all =
        blocks(&tag(&(nested("(", "topic", ")", MAX_BRACKETS) + &" ~ topic".repeat(MAX_OPERATORS - 16))));
    let text = on_a_small_stack(|| Template::parse(&all, &DECLARED).unwrap().render(&[("topic", "x")]));
    assert_eq!(text.unwrap(), "x".repeat(49));
}

#[test]
fn loops_of_too_many_rounds_are_refused_when_registered() {
    assert_eq!(refusal(&nested_loops(4, 100, "x")), RenderError::TooMuchWork);
    assert_eq!(refusal(&nested_loops(2, 100, "")), RenderError::TooMuchWork);
    assert_eq!(refusal(&nested_loops(MAX_BLOCKS, 3, "")), RenderError::TooMuchWork);
    assert_eq!(refusal(&nested_loops(1, 30_000, "")), RenderError::TooMuchWork);
    Template::parse(&nested_loops(1, 100, "{{ x0 }}"), &DECLARED).unwrap();
}

#[test]
fn a_loop_over_many_names_used_many_times_is_refused_before_it_is_counted_out() {
    let names: Vec<_> = (0..4_000).map(|index| format!("a{index}")).collect();
    for outside in ["", "{% for y in [] %}"] {
        let inside = if outside.is_empty() { "" } else { "{% endfor %}" };
        let uses = "{{x}}".repeat(5_000);
        let source = format!("{outside}{{% for x in [{}] %}}{uses}{{% endfor %}}{inside}", names.join(","));
        let begun = Instant::now();
        assert_eq!(Template::parse(&source, &names).unwrap_err(), RenderError::TooMuchWork);
        // Counted out, it takes minutes.
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_huge_text_in_a_loop_is_refused_when_registered() {
    let huge = "y".repeat(60_000);
    assert_eq!(refusal(&nested_loops(1, 1_000, &huge)), RenderError::TooMuchWork);
    assert_eq!(refusal(&nested_loops(1, 1_000, &format!("{{{{ '{huge}' }}}}"))), RenderError::TooMuchWork);
    assert_eq!(
        refusal(&nested_loops(1, 1_000, &format!("{{% if 'z' in '{huge}' %}}{{% endif %}}"))),
        RenderError::TooMuchWork
    );
}

#[test]
fn a_loop_of_few_rounds_is_refused_when_its_values_are_long() {
    let template =
        Template::parse(&nested_loops(1, 300, "{% if 'x' in topic %}{% endif %}"), &DECLARED).unwrap();
    assert_eq!(template.render(&[("topic", "y".repeat(1_000))]).unwrap(), "");
    assert_eq!(template.render(&[("topic", "y".repeat(1 << 20))]), Err(RenderError::ValuesTooLong));
    // Unused parts cost nothing.
    assert_eq!(template.render(&[("depth", "y".repeat(100 << 20))]).unwrap(), "");
}

#[test]
fn a_value_compared_to_a_short_text_costs_no_more_than_that() {
    let source = "{% if depth == 'deep' %}a{% endif %}".repeat(500);
    let template = Template::parse(&source, &DECLARED).unwrap();
    assert_eq!(template.render(&[("depth", "y".repeat(1 << 20))]).unwrap(), "");
}

#[test]
fn filters_that_lengthen_are_refused_before_they_run() {
    let controls = "\u{1}".repeat(1 << 20);
    let chained = |filter: &str, times| format!("{{{{ topic{} }}}}", format!(" | {filter}").repeat(times));
    assert_eq!(refusal(&chained("tojson", 64)), RenderError::TooMuchWork);
    for source in [chained("tojson", 3), chained("upper", 4), chained("lower", 64)] {
        let template = Template::parse(&source, &DECLARED).unwrap();
        assert_eq!(template.render(&[("topic", &controls)]), Err(RenderError::ValuesTooLong), "{source}");
    }
    let quotes = Template::parse(&chained("tojson", 3), &DECLARED).unwrap();
    assert_eq!(quotes.render(&[("topic", "\"")]).unwrap(), r#""\"\\\"\\\\\\\"\\\"\"""#);
}

#[test]
fn long_chains_of_concatenation_are_refused_before_they_run() {
    let source = format!("{{{{ topic{} }}}}", " ~ topic".repeat(60));
    let template = Template::parse(&source, &DECLARED).unwrap();
    assert_eq!(template.render(&[("topic", "ab")]).unwrap(), "ab".repeat(61));
    assert_eq!(template.render(&[("topic", "x".repeat(1 << 20))]), Err(RenderError::ValuesTooLong));
}

#[test]
fn output_ends_at_its_limit() {
    let limits = RenderLimits { output_bytes: 10, ..RenderLimits::default() };
    let template = Template::parse_within("{{ topic }}{{ topic }}", &DECLARED, limits).unwrap();
    assert_eq!(template.render(&[("topic", "12345")]).unwrap(), "1234512345");
    let refused = template.render(&[("topic", "123456")]);
    assert_eq!(refused, Err(RenderError::OutputTooLong { limit: 10 }));
    let default = Template::parse("{{ topic }}", &DECLARED).unwrap();
    assert_eq!(default.render(&[("topic", "x".repeat(1 << 20))]).unwrap().len(), 1 << 20);
    assert_eq!(
        default.render(&[("topic", "x".repeat((1 << 20) + 1))]).unwrap_err().to_string(),
        "the rendered text is longer than 1048576 bytes; give shorter values or shorten the template"
    );
}

#[test]
fn fuel_and_work_are_settings() {
    let within = |fuel, work_bytes| {
        let limits = RenderLimits { work_bytes, fuel, ..RenderLimits::default() };
        Template::parse_within("{{ topic }}, {{ topic }}", &DECLARED, limits)
    };
    assert_eq!(within(5, 1_000).unwrap_err(), RenderError::TooMuchWork);
    assert_eq!(within(0, 1_000).unwrap_err(), RenderError::TooMuchWork);
    assert_eq!(within(6, 1).unwrap_err(), RenderError::TooMuchWork);
    // The text between, each value printed twice and copied once.
    let template = within(6, 2 + 3 * 10).unwrap();
    assert_eq!(template.render(&[("topic", "0123456789")]).unwrap(), "0123456789, 0123456789");
    assert_eq!(template.render(&[("topic", "0123456789a")]), Err(RenderError::ValuesTooLong));
}
