//! The credentials that a gateway accepts and a reload replaces, and the key files of the data directory: the operator's key
//! and the demo's.

use std::fs;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use secrecy::zeroize::Zeroizing;

use super::AppError;
use super::background::Background;
use crate::config::Settings;
use crate::http::metadata::Metadata;
use crate::http::operator_keys::OperatorKeys;
use crate::identity::tokens::{PreparedIssuers, Tokens};
use crate::model::key::{KeyError, KeyKind, SecretKey};
use crate::model::system::System;
use crate::server::gateway::SharedMetadata;

/// The maximum size of a file of operator keys.
const MAX_BYTES: u64 = 64 << 10;

/// The credentials that a gateway accepts besides the keys in its database. A reload replaces them.
#[derive(Debug)]
pub(super) struct AcceptedCredentials {
    pub(super) operators: OperatorKeys,
    pub(super) tokens: Arc<Tokens>,
    /// Names the issuers of tokens to clients.
    pub(super) metadata: SharedMetadata,
}

impl AcceptedCredentials {
    /// Accepts these operator keys and the tokens of the configured issuers.
    pub(super) fn new(
        settings: &Settings,
        operators: OperatorKeys,
        background: &Background,
        system: System,
    ) -> Result<Self, AppError> {
        let tokens = Arc::new(Tokens::new(&settings.tokens, &settings.server.public_url, system));
        let issuers = tokens.prepare(&settings.tokens.issuers)?;
        let accepted = Self { operators, tokens, metadata: Arc::new(ArcSwapOption::empty()) };
        accepted.replace_issuers(issuers, settings, background);
        Ok(accepted)
    }

    /// Replaces the issuers whose tokens are accepted.
    pub(super) fn replace_issuers(
        &self,
        issuers: PreparedIssuers,
        settings: &Settings,
        background: &Background,
    ) {
        self.tokens.replace(issuers, &background.tasks, &background.stop);
        let named = settings.tokens.issuers.iter().map(|entry| entry.issuer.to_string()).collect();
        self.metadata.store(Metadata::new(settings.server.public_url.clone(), named).map(Arc::new));
    }

    /// Replaces the operator keys.
    pub(super) fn replace_operators(&self, keys: &[SecretKey]) {
        self.operators.replace(keys);
        log_operators(&self.operators);
    }
}

/// Logs the ids by which audit rows name the operator keys.
pub(super) fn log_operators(operators: &OperatorKeys) {
    for key in operators.list() {
        tracing::info!(key_id = %key.id.0, key_display = key.display, "operator key in force");
    }
}

/// The operator keys of the settings and of their file. Without either, on the embedded database, the one in
/// `operator.key`, generated at the first start. The lock on the data directory, held by the embedded database, prevents
/// a second gateway from generating another.
pub(super) fn operators(
    settings: &Settings,
    embedded: bool,
    system: &System,
) -> Result<Vec<SecretKey>, AppError> {
    let mut keys = settings.admin.operator_keys().to_vec();
    if let Some(file) = &settings.admin.operator_keys_file {
        keys.extend(operator_keys(file)?);
    }
    match keys.is_empty() {
        false => Ok(keys),
        true if embedded => {
            Ok(vec![embedded_operator_key(&settings.embedded.data_dir.join("operator.key"), system)?])
        }
        true => Err(AppError::NoOperatorKey),
    }
}

/// The operator keys of a file, one per line.
pub(super) fn operator_keys(file: &Path) -> Result<Vec<SecretKey>, AppError> {
    let named = || file.display().to_string();
    let mut text = Zeroizing::new(String::new());
    let opened = fs::File::open(file).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    let length = opened.map_err(|error| AppError::File(named(), error))?;
    if length as u64 > MAX_BYTES {
        return Err(AppError::LongFile(named(), MAX_BYTES));
    }
    let lines = text.lines().map(str::trim).zip(1_usize..);
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let keys: Result<Vec<_>, _> = lines
        .map(|(line, number)| match SecretKey::parse(line) {
            Ok(key) if key.kind() == KeyKind::Operator => Ok(key),
            Ok(_) => Err(AppError::OperatorKeys(named(), number, KeyError::Prefix)),
            Err(error) => Err(AppError::OperatorKeys(named(), number, error)),
        })
        .collect();
    let keys = keys?;
    if keys.is_empty() { Err(AppError::NoOperatorKeys(named())) } else { Ok(keys) }
}

fn embedded_operator_key(file: &Path, system: &System) -> Result<SecretKey, AppError> {
    if let Some(key) = read(file)? {
        return Ok(key);
    }
    let key = SecretKey::generate(KeyKind::Operator, &mut system.csprng()?);
    write(file, &key)?;
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A failure is ignored: the file has the key.
        let _ = writeln!(terminal, "operator key (shown once, kept in {}): {}", file.display(), key.reveal());
    }
    Ok(key)
}

/// The key that a file holds, if there is such a file.
pub(super) fn read(file: &Path) -> Result<Option<SecretKey>, AppError> {
    let named = || file.display().to_string();
    match fs::read_to_string(file) {
        Ok(text) => SecretKey::parse(text.trim()).map(Some).map_err(|error| AppError::Key(named(), error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(AppError::File(named(), error)),
    }
}

/// Writes a key to a private file atomically.
pub(super) fn write(file: &Path, key: &SecretKey) -> Result<(), AppError> {
    write_private(file, &format!("{}\n", key.reveal()))
}

/// Writes a file that only its owner may read, atomically.
pub(super) fn write_private(file: &Path, text: &str) -> Result<(), AppError> {
    let failed = |error| AppError::File(file.display().to_string(), error);
    // With a configured database the data directory may not exist yet.
    file.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    let unfinished = file.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut writer = options.open(&unfinished).map_err(failed)?;
    writer.write_all(text.as_bytes()).and_then(|()| writer.sync_all()).map_err(failed)?;
    fs::rename(&unfinished, file).map_err(failed)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::{KeyKind, SecretKey, operator_keys};

    #[test]
    fn a_file_holds_one_operator_key_per_line() {
        let [first, second] =
            [1, 2].map(|seed| SecretKey::generate(KeyKind::Operator, &mut StdRng::seed_from_u64(seed)));
        let agent = SecretKey::generate(KeyKind::Agent, &mut StdRng::seed_from_u64(3));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("operator.keys");
        let read = |text: String| {
            std::fs::write(&file, text).unwrap();
            let keys = operator_keys(&file).map_err(|error| error.to_string());
            keys.map(|keys| keys.iter().map(|key| key.reveal().to_owned()).collect::<Vec<_>>())
        };
        let [one, two] = [first.reveal(), second.reveal()];
        assert_eq!(read(format!("# old\n{one}\n\n  {two}  \r\n")), Ok(vec![one.to_owned(), two.to_owned()]));
        let named = file.display();
        let wrong = read(format!("{one}\n{}\n", agent.reveal())).unwrap_err();
        assert!(wrong.starts_with(&format!("{named}:2: ")), "{wrong}");
        assert!(!wrong.contains(agent.reveal()) && !wrong.contains(one));
        let long = read(format!("{one}\n").repeat(1_300)).unwrap_err();
        assert_eq!(long, format!("{named} is longer than 65536 bytes; expected one operator key per line"));
        assert_eq!(
            read("# none\n".to_owned()),
            Err(format!(
                "{named} holds no operator key; add one with: waggle key generate --operator >> {named}"
            ))
        );
    }
}
