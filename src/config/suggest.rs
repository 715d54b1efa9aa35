//! Suggestions for unknown settings.

/// Advice for an unknown name: the setting it resembles, else the settings of its section. Empty if there is none.
///
/// `spell` formats a setting for its source: `server.listen` or `WAGGLE_SERVER__LISTEN`.
pub(super) fn advice(unknown: &str, settings: &[&str], spell: impl Fn(&str) -> String) -> String {
    if let Some(near) = nearest(unknown, settings) {
        return format!("; did you mean {}?", spell(near));
    }
    let section = plain(unknown).split('_').next().unwrap_or_default().to_owned();
    let in_section = |setting: &&&str| {
        setting.split_once('.').is_some_and(|(of, _)| strsim::damerau_levenshtein(of, &section) <= 1)
    };
    let keys: Vec<String> = settings.iter().filter(in_section).map(|setting| spell(setting)).collect();
    if keys.is_empty() { String::new() } else { format!("; the section has {}", keys.join(", ")) }
}

fn nearest<'a>(unknown: &str, settings: &[&'a str]) -> Option<&'a str> {
    if let Some(above) = settings.iter().find(|setting| unknown.starts_with(&format!("{setting}."))) {
        return Some(above);
    }
    let unknown = plain(unknown);
    let key_alone = settings.iter().find(|setting| plain(setting).ends_with(&format!("_{unknown}")));
    let distance = |setting: &&&str| strsim::damerau_levenshtein(&plain(setting), &unknown);
    let close = settings.iter().min_by_key(distance).filter(|near| distance(near) <= 1 + unknown.len() / 6);
    close.or(key_alone).copied()
}

/// The name in lower case, with uniform separators.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace("__", "_").replace(['.', '-'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: [&str; 6] =
        ["server.listen", "server.public_url", "database.url", "admin.listen", "log.format", "log.filter"];

    fn near(unknown: &str) -> Option<&'static str> {
        nearest(unknown, &SETTINGS)
    }

    #[test]
    fn misspelt_name_finds_its_setting() {
        assert_eq!(near("server.listn"), Some("server.listen"));
        assert_eq!(near("sever.listen"), Some("server.listen"));
        assert_eq!(near("server_listen"), Some("server.listen"));
        assert_eq!(near("server__LISTEN"), Some("server.listen"));
        assert_eq!(near("server.public-url"), Some("server.public_url"));
        assert_eq!(near("database.uri"), Some("database.url"));
    }

    #[test]
    fn key_without_section_finds_the_first_of_that_name() {
        assert_eq!(near("listen"), Some("server.listen"));
        assert_eq!(near("public_url"), Some("server.public_url"));
    }

    #[test]
    fn setting_written_as_a_table_is_found() {
        assert_eq!(near("database.url.host"), Some("database.url"));
    }

    #[test]
    fn unknown_key_lists_the_settings_of_its_section() {
        for unknown in ["log.level", "log_level", "logs.level", "LOG__LEVEL", "log"] {
            assert_eq!(
                advice(unknown, &SETTINGS, str::to_owned),
                "; the section has log.format, log.filter",
                "{unknown}"
            );
        }
    }

    #[test]
    fn unrelated_name_gets_no_advice() {
        assert_eq!(advice("colour.background", &SETTINGS, str::to_owned), "");
    }
}
