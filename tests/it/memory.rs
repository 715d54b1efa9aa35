//! Memory of hostile templates, each measured in a process of its own.

use std::fs::read_to_string;
use std::process::Command;
use std::time::Instant;

use waggle::catalog::render::{RenderError, Template};

/// Names the case for the process that runs it.
const CASE: &str = "RENDER_MEMORY_CASE";

/// The permitted memory of a case in addition to that of the idle process, in KiB.
const ALLOWED: u64 = 64 << 10;

const MIB: usize = 1 << 20;

/// The arguments that every template here declares.
const DECLARED: [&str; 1] = ["topic"];

/// A template, and the value of `topic`.
type Case = (&'static str, fn() -> String, fn() -> String);

fn doublings() -> String {
    format!("{{% set x = 'aaaaaaaaaaaaaaaa' %}}{}{{{{ x }}}}", "{% set x = x ~ x %}".repeat(27))
}

fn nested_loops(levels: usize, items: usize, body: &str) -> String {
    let open = |level| format!("{{% for x{level} in [{}] %}}", "1,".repeat(items));
    let opened: String = (0..levels).map(open).collect();
    format!("{opened}{body}{}", "{% endfor %}".repeat(levels))
}

fn tag(inner: &str) -> String {
    format!("{{{{ {inner} }}}}")
}

/// Templates that must be refused, and the most expensive ones that are not.
const CASES: [Case; 18] = [
    ("twenty-seven doublings", doublings, String::new),
    ("an indent of 500 MB", || tag("'x' | indent(500000000)"), String::new),
    ("a repetition of 500 MB", || tag("'x' * 500000000"), String::new),
    ("loops in loops", || nested_loops(4, 100, "{{ topic }}"), || "x".repeat(MIB)),
    (
        "a huge text in a loop",
        || nested_loops(1, 2_000, &tag(&format!("'{}'", "y".repeat(50_000)))),
        String::new,
    ),
    ("a list of 30,000", || nested_loops(1, 30_000, ""), String::new),
    ("tojson upon tojson", || tag(&format!("topic{}", "|tojson".repeat(27))), || "\"".into()),
    ("tojson of control characters", || tag("topic | tojson"), || "\u{1}".repeat(MIB)),
    ("tojson thrice", || tag("topic | tojson | tojson | tojson"), || "\u{1}".repeat(MIB)),
    ("upper of characters that grow", || tag("topic|upper|lower|upper"), || "\u{390}".repeat(MIB / 2)),
    ("the longest that upper has work for", || tag("topic | upper | length"), || "\u{390}".repeat(MIB)),
    ("a chain of sixty", || tag(&format!("topic{}", " ~ topic".repeat(60))), || "x".repeat(MIB)),
    ("the longest chain there is work for", || tag("(topic ~ topic ~ topic) | length"), || "x".repeat(MIB)),
    (
        "ten thousand parentheses",
        || tag(&format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000))),
        String::new,
    ),
    ("ten thousand ifs", || "{% if 1 %}".repeat(10_000) + &"{% endif %}".repeat(10_000), String::new),
    ("a source of a mebibyte", || "{{ topic }}".repeat(MIB / 11), String::new),
    ("as many tags as there are steps for", || "{{topic}}".repeat(4_900), || "x".repeat(200)),
    ("output without end", || nested_loops(2, 40, "{{ topic }}"), || "x".repeat(10_000)),
];

#[test]
fn hostile_templates_use_at_most_64_mebibytes() {
    let (_, path) = module_path!().split_once("::").unwrap();
    let child = format!("{path}::process_of_one_case");
    for (case, (name, ..)) in CASES.iter().enumerate() {
        let ran = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &child, "--nocapture"])
            .env(CASE, case.to_string())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{name}: {output}{}", String::from_utf8_lossy(&ran.stderr));
        let usage = output.lines().find_map(|line| line.split_once("above idle: ")).unwrap().1;
        println!("{name}: {usage}");
        let taken: u64 = usage.split_once(' ').unwrap().0.parse().unwrap();
        assert!(taken <= ALLOWED, "{name}: {usage}");
    }
}

/// Runs one case, if the test above started this process for it.
#[test]
fn process_of_one_case() {
    let Ok(case) = std::env::var(CASE) else { return };
    let (_, source, topic) = CASES[case.parse::<usize>().unwrap()];
    let (source, topic) = (source(), topic());
    let (idle, begun) = (peak(), Instant::now());
    let end = run(&source, &topic);
    println!("above idle: {} KiB, {:?}, {end}", peak() - idle, begun.elapsed());
}

fn run(source: &str, topic: &str) -> String {
    let rendered =
        Template::parse(source, &DECLARED).and_then(|template| template.render(&[("topic", topic)]));
    match rendered {
        Ok(text) => format!("{} bytes", text.len()),
        Err(RenderError::Failed(bug)) => panic!("{bug}"),
        Err(refused) => refused.to_string(),
    }
}

/// The peak memory of this process so far, in KiB.
fn peak() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
