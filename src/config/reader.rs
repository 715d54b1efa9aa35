//! Takes the settings out of the layers one by one, and collects errors and what to show.

use std::ffi::OsString;

use super::environment::{Environment, SHARED_DATABASE_URL};
use super::kind::{DisplayValue, Kind};
use super::layers::{LayerValue, Layers, Raw};
use super::problem::{self, Problem, Source};

/// A setting that was read, with what is shown of it.
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// `None` if it is not set and has no default.
    pub(super) value: Option<DisplayValue>,
    /// Where the value was set; `None` for a default.
    pub(super) source: Option<Source>,
    /// The digest of a secret as it was given, by which a change is recognized.
    pub(super) secret_digest: Option<[u8; 32]>,
    /// The documentation, line by line.
    pub(super) documentation: &'static [&'static str],
    pub(super) reference: Reference,
}

/// How `config/waggle.toml` shows a setting.
#[derive(Clone, Copy, Default)]
pub(super) enum Reference {
    /// With its default.
    #[default]
    Default,
    /// As a comment with its default, which follows from other settings.
    Derived,
    /// As a comment with this example, written in TOML.
    Example(&'static str),
}

/// Reads each setting once. Errors are collected, and reading continues with the default.
pub(super) struct Reader {
    layers: Layers,
    environment: Environment,
    documentation: &'static [&'static str],
    reference: Reference,
    entries: Vec<Entry>,
    problems: Vec<Problem>,
}

/// What the layers contain for one setting.
struct Given<V> {
    /// The value of the highest layer that has a valid one.
    value: Option<V>,
    /// The highest layer that sets it, validly or not.
    source: Option<Source>,
    digest: Option<[u8; 32]>,
}

impl Reader {
    /// Starts with the errors of the layers themselves.
    pub(super) fn new(layers: Layers, environment: Environment, problems: Vec<Problem>) -> Self {
        let (documentation, reference) = (&[][..], Reference::default());
        Self { layers, environment, documentation, reference, entries: Vec::new(), problems }
    }

    /// Sets the documentation of the next setting.
    pub(super) fn document(&mut self, lines: &'static [&'static str]) {
        self.documentation = lines;
    }

    /// Sets the example of the next setting.
    pub(super) fn example(&mut self, toml: &'static str) {
        self.reference = Reference::Example(toml);
    }

    /// Reads a setting that always has a value.
    pub(super) fn value<K: Kind>(&mut self, name: &'static str, kind: &K, default: K::Value) -> K::Value {
        let Given { value, source, digest } = self.given(name, kind);
        let value = value.unwrap_or(default);
        self.add(name, Some(kind.display(&value)), source, digest);
        value
    }

    /// As [`value`](Self::value), for a default that follows from other settings.
    pub(super) fn derived<K: Kind>(&mut self, name: &'static str, kind: &K, default: K::Value) -> K::Value {
        self.reference = Reference::Derived;
        self.value(name, kind, default)
    }

    /// Reads a setting that may have no value.
    pub(super) fn optional<K: Kind>(
        &mut self,
        name: &'static str,
        kind: &K,
        default: Option<K::Value>,
    ) -> Option<K::Value> {
        let Given { value, source, digest } = self.given(name, kind);
        let value = value.or(default);
        self.add(name, value.as_ref().map(|value| kind.display(value)), source, digest);
        value
    }

    /// A variable of the system, which is not a setting.
    pub(super) fn system(&mut self, variable: &str) -> Option<OsString> {
        self.documentation = &[];
        self.environment.of_the_system(variable)
    }

    /// A variable of the environment that is not a setting, as text; `None` if it is not UTF-8.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.environment.of_the_system(name)?.into_string().ok()
    }

    /// Reports the wrong value of such a variable, whose name is the first word of the message.
    pub(super) fn refuse_variable(&mut self, problem: &str) {
        let (name, message) = problem.split_once(' ').unwrap_or((problem, ""));
        let source = Some(Source::Variable(name.to_owned()));
        self.problems.push(Problem { source, setting: None, message: message.to_owned() });
    }

    fn add(
        &mut self,
        name: &'static str,
        value: Option<DisplayValue>,
        source: Option<Source>,
        digest: Option<[u8; 32]>,
    ) {
        let secret_digest = digest.filter(|_| value == Some(DisplayValue::Secret));
        let documentation = std::mem::take(&mut self.documentation);
        let reference = std::mem::take(&mut self.reference);
        self.entries.push(Entry { name, value, source, secret_digest, documentation, reference });
    }

    /// Whether any layer sets the setting, validly or not. It must have been read.
    pub(super) fn was_given(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name && entry.source.is_some())
    }

    /// Displays another value of a setting that was read, for a default that settings below it decide.
    pub(super) fn override_displayed<K: Kind>(&mut self, name: &str, kind: &K, value: &K::Value) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            entry.value = Some(kind.display(value));
        }
    }

    /// Reports settings that contradict each other, under the one to change.
    pub(super) fn refuse(&mut self, setting: &str, message: &str) {
        let source =
            self.entries.iter().find(|entry| entry.name == setting).and_then(|entry| entry.source.clone());
        let problem = Problem { source, setting: Some(setting.to_owned()), message: message.to_owned() };
        self.problems.push(problem);
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// All problems, unknown settings included.
    pub(super) fn finish(mut self) -> Result<Vec<Entry>, Vec<Problem>> {
        let known: Vec<&str> = self.entries.iter().map(|entry| entry.name).collect();
        let unknown = self.layers.left_over().filter(|(name, given)| !is_empty_section(name, given, &known));
        let unknown = unknown.map(|(name, given)| unknown_setting(name, given.source, &known));
        self.problems.extend(unknown.filter(|(_, foreign)| !foreign).map(|(problem, _)| problem));
        if self.problems.is_empty() { Ok(self.entries) } else { Err(self.problems) }
    }

    /// The value of the highest layer. Overridden values are validated too, so that removing an override never reveals an
    /// invalid value; but a variable shared with other programs is validated only where it is used.
    fn given<K: Kind>(&mut self, name: &'static str, kind: &K) -> Given<K::Value> {
        let given = self.layers.take(name);
        let highest = given.last().map(|one| one.source.clone());
        let digest = given.last().map(|one| one.raw.digest());
        let mut value = None;
        for one in given {
            let shared = one.source == Source::Variable(SHARED_DATABASE_URL.to_owned());
            if shared && highest.as_ref() != Some(&one.source) {
                continue;
            }
            match kind.parse(&one.raw) {
                Ok(parsed) => value = Some(parsed),
                Err(message) => self.problems.push(Problem {
                    source: Some(one.source),
                    setting: Some(name.to_owned()),
                    message,
                }),
            }
        }
        Given { value, source: highest, digest }
    }
}

fn is_empty_section(name: &str, given: &LayerValue, known: &[&str]) -> bool {
    let section = |setting: &&str| setting.split_once('.').is_some_and(|(section, _)| section == name);
    matches!(given.raw, Raw::EmptyTable) && known.iter().any(section)
}

/// The problem with an unknown name, and whether it belongs to another program: a variable without `__` that resembles no
/// setting, such as `WAGGLE_BIN` of a script.
fn unknown_setting(name: String, source: Source, known: &[&str]) -> (Problem, bool) {
    let in_environment = matches!(source, Source::Variable(_));
    let advice = problem::advice(&name, known, |setting| {
        if in_environment {
            format!("WAGGLE_{}", setting.replace('.', "__").to_ascii_uppercase())
        } else {
            setting.to_owned()
        }
    });
    let foreign = in_environment && advice.is_empty() && !name.contains('.');
    (
        Problem { source: Some(source), setting: Some(name), message: format!("unknown setting{advice}") },
        foreign,
    )
}
