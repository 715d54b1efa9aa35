//! Takes the settings out of the layers one by one, and keeps what was wrong and what to show.

use super::{
    environment::SHARED_DATABASE_URL,
    kind::{Kind, Shown},
    layers::{Given, Layers, Raw},
    problem::{Place, Problem},
    suggest,
};

/// A setting that was read, as it is shown.
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// `None` where it is not set and has no default.
    pub(super) value: Option<Shown>,
    /// Who gave the value; `None` for a default.
    pub(super) place: Option<Place>,
    /// The digest of a secret as it was given, by which a changed one is recognised.
    pub(super) secret: Option<[u8; 32]>,
}

/// Reads settings, each once; what is wrong is collected while reading goes on with the defaults.
pub(super) struct Reader {
    layers: Layers,
    entries: Vec<Entry>,
    problems: Vec<Problem>,
}

impl Reader {
    /// Starts with what was already wrong with the layers themselves.
    pub(super) fn new(layers: Layers, problems: Vec<Problem>) -> Self {
        Self { layers, entries: Vec::new(), problems }
    }

    /// Reads a setting that always has a value.
    pub(super) fn value<K: Kind>(&mut self, name: &'static str, kind: &K, default: K::Value) -> K::Value {
        let (given, place, digest) = self.given(name, kind);
        let value = given.unwrap_or(default);
        self.add(name, Some(kind.show(&value)), place, digest);
        value
    }

    /// Reads a setting that may be without a value.
    pub(super) fn optional<K: Kind>(
        &mut self,
        name: &'static str,
        kind: &K,
        default: Option<K::Value>,
    ) -> Option<K::Value> {
        let (given, place, digest) = self.given(name, kind);
        let value = given.or(default);
        self.add(name, value.as_ref().map(|value| kind.show(value)), place, digest);
        value
    }

    fn add(
        &mut self,
        name: &'static str,
        value: Option<Shown>,
        place: Option<Place>,
        digest: Option<[u8; 32]>,
    ) {
        let secret = digest.filter(|_| value == Some(Shown::Secret));
        self.entries.push(Entry { name, value, place, secret });
    }

    /// Whether any layer gives the setting, which must have been read, even wrongly.
    pub(super) fn was_given(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name && entry.place.is_some())
    }

    /// Tells what does not fit together, under the setting to change.
    pub(super) fn refuse(&mut self, setting: &str, message: &str) {
        let place =
            self.entries.iter().find(|entry| entry.name == setting).and_then(|entry| entry.place.clone());
        let problem = Problem { place, setting: Some(setting.to_owned()), message: message.to_owned() };
        self.problems.push(problem);
    }

    /// Ends the reading: the settings as they are shown, or everything that is wrong.
    pub(super) fn finish(mut self) -> Result<Vec<Entry>, Vec<Problem>> {
        let known: Vec<&str> = self.entries.iter().map(|entry| entry.name).collect();
        let unknown = self.layers.left_over().filter(|(name, given)| !is_empty_section(name, given, &known));
        self.problems.extend(unknown.map(|(name, given)| unknown_setting(name, given.place, &known)));
        if self.problems.is_empty() { Ok(self.entries) } else { Err(self.problems) }
    }

    /// The highest layer's value and place. Values that are overridden are checked too, so that none waits to
    /// be found wrong on the day its override goes; but a variable shared with other programs is not ours to judge.
    fn given<K: Kind>(
        &mut self,
        name: &'static str,
        kind: &K,
    ) -> (Option<K::Value>, Option<Place>, Option<[u8; 32]>) {
        let given = self.layers.take(name);
        let highest = given.last().map(|one| one.place.clone());
        let digest = given.last().map(|one| one.raw.digest());
        let mut value = None;
        for one in given {
            let shared = one.place == Place::Variable(SHARED_DATABASE_URL.to_owned());
            if shared && highest.as_ref() != Some(&one.place) {
                continue;
            }
            match kind.parse(&one.raw) {
                Ok(parsed) => value = Some(parsed),
                Err(message) => self.problems.push(Problem {
                    place: Some(one.place),
                    setting: Some(name.to_owned()),
                    message,
                }),
            }
        }
        (value, highest, digest)
    }
}

fn is_empty_section(name: &str, given: &Given, known: &[&str]) -> bool {
    let section = |setting: &&str| setting.split_once('.').is_some_and(|(section, _)| section == name);
    matches!(given.raw, Raw::EmptyTable) && known.iter().any(section)
}

fn unknown_setting(name: String, place: Place, known: &[&str]) -> Problem {
    let in_environment = matches!(place, Place::Variable(_));
    let advice = suggest::advice(&name, known, |setting| {
        if in_environment {
            format!("WAGGLE_{}", setting.replace('.', "__").to_ascii_uppercase())
        } else {
            setting.to_owned()
        }
    });
    Problem { place: Some(place), setting: Some(name), message: format!("unknown setting{advice}") }
}
