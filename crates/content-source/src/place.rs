//! Places: where content is within a connection, with variables, as definitions write it.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{FetchError, SettingsError};
use crate::kind::Kind;
use crate::location::{Format, Location, Path, Segment};
use crate::source::Tree;

/// The maximum length of a path, a query, a reference and a statement.
const MAX_BYTES: usize = 16 * 1024;
/// The maximum length of a reference.
const MAX_REFERENCE: usize = 256;
/// The maximum number of members of a query.
const MAX_QUERY: usize = 64;
/// What is wrong with a path that has a scheme.
const SCHEME: &str = "must be relative, without a scheme";

/// The members of a place as they are written: `path`, or `statement`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlaceText {
    /// A relative path, percent-encoded. `{name}` stands for a variable without slashes, `{+name}` for one that may have
    /// slashes. A final `/`, or an empty path, is a directory.
    pub path: Option<String>,
    /// The query of a URL, not percent-encoded; values may have variables.
    pub query: BTreeMap<String, String>,
    /// The branch, tag or commit of a git repository.
    pub reference: Option<String>,
    /// `@name` of a statement of the connection, or a statement.
    pub statement: Option<String>,
    /// How the rows of a statement are written; JSON if absent.
    pub format: Option<Format>,
}

/// A validated place, which becomes a [`Location`] once its variables have values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(Target);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// The path, the values of the query with their names, and the reference.
    Path(Pattern, Vec<(String, Pattern)>, Option<String>),
    Statement(String, Format),
}

/// A text with variables, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Variable { name: String, allows_slashes: bool },
}

/// A variable of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variable<'p> {
    /// Its name.
    pub name: &'p str,
    /// Whether it is written `{+name}`.
    pub allows_slashes: bool,
}

impl Place {
    /// Validates a place.
    ///
    /// # Errors
    /// [`SettingsError`] that names a member of `text`.
    pub fn new(text: PlaceText) -> Result<Self, SettingsError> {
        let place = Self::of_stored(text)?;
        // As decoded: the path was checked as it is written when it was parsed.
        match &place.0 {
            Target::Path(path, ..) if path.has_scheme() => Err(SettingsError::new("path", SCHEME)),
            _ => Ok(place),
        }
    }

    /// Parses a place that was validated when it was stored, by the rules of an earlier version.
    ///
    /// # Errors
    /// [`SettingsError`] that names a member of `text`.
    pub fn of_stored(text: PlaceText) -> Result<Self, SettingsError> {
        if let Some(reference) = &text.reference {
            check_length("ref", reference.len(), MAX_REFERENCE)?;
            if reference.is_empty() || reference.contains(|c: char| c.is_control() || c.is_whitespace()) {
                return Err(SettingsError::new("ref", "is not the name of a branch, tag or commit"));
            }
        }
        match (text.path, text.statement) {
            (Some(path), None) => {
                if text.format.is_some() {
                    return Err(SettingsError::new("format", "is only for a statement"));
                }
                let path = path_pattern(&path)?;
                if text.query.len() > MAX_QUERY {
                    return Err(SettingsError::new("query", format!("has more than {MAX_QUERY} members")));
                }
                let query = text.query.into_iter().map(|(name, value)| {
                    let bytes = name.len().max(value.len());
                    check_length("query", bytes, MAX_BYTES)?;
                    Ok((name, Pattern::parse("query", &value)?))
                });
                Ok(Self(Target::Path(path, query.collect::<Result<_, _>>()?, text.reference)))
            }
            (None, Some(statement)) => {
                if !text.query.is_empty() || text.reference.is_some() {
                    return Err(SettingsError::new("statement", "excludes query and ref"));
                }
                check_length("statement", statement.len(), MAX_BYTES)?;
                if statement.trim().is_empty() || statement.contains('\0') {
                    return Err(SettingsError::new("statement", "is empty or contains a NUL character"));
                }
                Ok(Self(Target::Statement(statement, text.format.unwrap_or(Format::Json))))
            }
            _ => Err(SettingsError::new("path", "or statement is required, and excludes the other")),
        }
    }

    /// The place of a file of a tree. `path` is relative to its directory and decoded; unlike paths that definitions write,
    /// it may have `?` and `#`. `None` if it is no path of a file.
    pub fn of_file(tree: &Tree, path: &str) -> Option<Self> {
        let file = split(path).filter(|file| !file.is_directory)?;
        let segments = tree.path.segments.iter().chain(&file.segments).map(Segment::as_str);
        let whole = Pattern(vec![Piece::Literal(segments.collect::<Vec<_>>().join("/"))]);
        Some(Self(Target::Path(whole, Vec::new(), tree.reference.clone())))
    }

    /// Checks that a kind of source has such places.
    ///
    /// # Errors
    /// [`SettingsError`] that names a member of the place.
    pub fn check_kind(&self, kind: Kind) -> Result<(), SettingsError> {
        let problem = |what: &str| format!("{what} of a connection of kind {}", kind.as_str());
        match (&self.0, kind) {
            (Target::Statement(..), Kind::Sql) => Ok(()),
            (Target::Path(..), Kind::Sql) => Err(SettingsError::new("statement", problem("is required"))),
            (Target::Statement(..), _) => Err(SettingsError::new("path", problem("is required"))),
            (Target::Path(_, query, _), _) if kind != Kind::Http && !query.is_empty() => {
                Err(SettingsError::new("query", problem("is no member")))
            }
            (Target::Path(_, _, Some(_)), _) if kind != Kind::Git => {
                Err(SettingsError::new("ref", problem("is no member")))
            }
            (Target::Path(..), _) => Ok(()),
        }
    }

    /// The variables of the path and the query, in order and each once. Those of a statement are its source's matter: it may
    /// be named only.
    pub fn variables(&self) -> BTreeSet<Variable<'_>> {
        let Target::Path(path, query, _) = &self.0 else { return BTreeSet::new() };
        let patterns = std::iter::once(path).chain(query.iter().map(|(_, value)| value));
        patterns.flat_map(Pattern::variables).collect()
    }

    /// Whether its variables can have these values: those of a path and a query are a segment, or several where slashes are
    /// allowed; all others are any text without NUL.
    pub fn admits<'v>(&self, values: impl IntoIterator<Item = (&'v str, &'v str)>) -> bool {
        let variables = self.variables();
        values.into_iter().all(|(name, value)| {
            let mut named = variables.iter().filter(|of| of.name == name);
            is_text(value) && named.all(|of| is_inside(value, of.allows_slashes))
        })
    }

    /// The location for these values of its variables.
    ///
    /// # Errors
    /// [`FetchError::NotFound`] for values that it does not [admit](Self::admits), and a path with an empty segment.
    pub fn resolve<'v>(
        &self,
        values: impl IntoIterator<Item = (&'v str, &'v str)>,
    ) -> Result<Location, FetchError> {
        let values: BTreeMap<_, _> = values.into_iter().collect();
        match &self.0 {
            Target::Path(path, query, reference) => {
                let is_directory = path.ends_with_slash();
                let path = split(&path.resolve(&values)?).filter(|path| path.is_directory == is_directory);
                let path = path.ok_or(FetchError::NotFound)?;
                let mut resolved = Vec::with_capacity(query.len());
                for (name, pattern) in query {
                    if !pattern.is_absent(&values) {
                        resolved.push((name.clone(), pattern.resolve(&values)?));
                    }
                }
                Ok(Location::Path { path, query: resolved, reference: reference.clone() })
            }
            Target::Statement(statement, format) => {
                if !values.values().copied().all(is_text) {
                    return Err(FetchError::NotFound);
                }
                let parameters = values.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
                let (statement, parameters) = (statement.clone(), parameters.collect());
                Ok(Location::Statement { statement, parameters, format: *format })
            }
        }
    }
}

fn check_length(member: &str, bytes: usize, most: usize) -> Result<(), SettingsError> {
    if bytes > most {
        return Err(SettingsError::new(member, format!("is longer than {most} bytes")));
    }
    Ok(())
}

/// Whether a value stays in its segment of a path or value of a query, or forms segments of its own if it may have slashes.
fn is_inside(value: &str, allows_slashes: bool) -> bool {
    let is_inside = |part: &str| part != "." && part != ".." && !part.contains(['/', '\\', '\0']);
    if allows_slashes && value.contains('/') {
        value.split('/').all(|part| !part.is_empty() && is_inside(part))
    } else {
        is_inside(value)
    }
}

/// Whether a value can be a parameter of a statement.
fn is_text(value: &str) -> bool {
    !value.contains('\0')
}

/// Whether a text begins as a URI does.
fn has_scheme(text: &str) -> bool {
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(is_of_scheme))
}

/// Parses a path. It is checked as it is written and as it is decoded, with a letter for each variable.
fn path_pattern(text: &str) -> Result<Pattern, SettingsError> {
    let wrong = |problem: &str| SettingsError::new("path", problem.to_owned());
    check_length("path", text.len(), MAX_BYTES)?;
    if has_scheme(text) {
        return Err(wrong(SCHEME));
    }
    let mut pattern = Pattern::parse("path", text)?;
    for piece in &mut pattern.0 {
        if let Piece::Literal(literal) = piece {
            let slashes = literal.matches('/').count();
            *literal =
                decoded(literal).ok_or_else(|| wrong("has a % without two hexadecimal digits after it"))?;
            if literal.contains(['?', '#', '\\', '\0']) || literal.matches('/').count() != slashes {
                return Err(wrong("must not contain ?, #, \\ or NUL, nor an encoded /"));
            }
        }
    }
    let filled = pattern.fill(|_, _| Ok("x")).map_err(|_| wrong("is invalid"))?;
    match split(&filled) {
        Some(_) => Ok(pattern),
        None => Err(wrong("must be relative, without empty, `.` and `..` segments")),
    }
}

/// Decodes percent-encoded UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let mut digit =
                || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            digit()? << 4 | digit()?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok()
}

/// The segments of a path; `None` if one is invalid. The empty path and one that ends in `/` are directories.
fn split(text: &str) -> Option<Path> {
    let inner = text.strip_suffix('/').unwrap_or(text);
    let is_directory = text.is_empty() || inner.len() < text.len();
    if inner.is_empty() {
        return text.is_empty().then_some(Path { segments: Vec::new(), is_directory });
    }
    let segments = inner.split('/').map(Segment::new).collect::<Option<_>>()?;
    Some(Path { segments, is_directory })
}

impl Pattern {
    fn parse(member: &str, text: &str) -> Result<Self, SettingsError> {
        let wrong = || SettingsError::new(member, "has braces that are not {name} or {+name}");
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            let (inside, after) = after.split_once('}').ok_or_else(wrong)?;
            let name = inside.strip_prefix('+');
            let allows_slashes = name.is_some();
            let name = name.unwrap_or(inside);
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
            if name.is_empty() || !name.chars().all(is_of_name) || literal.contains('}') {
                return Err(wrong());
            }
            pieces.push(Piece::Literal(literal.to_owned()));
            pieces.push(Piece::Variable { name: name.to_owned(), allows_slashes });
            rest = after;
        }
        if rest.contains('}') {
            return Err(wrong());
        }
        pieces.push(Piece::Literal(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// Whether it begins with a scheme, without regard to variables.
    fn has_scheme(&self) -> bool {
        matches!(self.0.first(), Some(Piece::Literal(first)) if has_scheme(first))
    }

    fn variables(&self) -> impl Iterator<Item = Variable<'_>> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Variable { name, allows_slashes } => {
                Some(Variable { name, allows_slashes: *allows_slashes })
            }
        })
    }

    /// Whether the text of a path is that of a directory, with any values.
    fn ends_with_slash(&self) -> bool {
        match &self.0[..] {
            [Piece::Literal(only)] if only.is_empty() => true,
            pieces => matches!(pieces.last(), Some(Piece::Literal(last)) if last.ends_with('/')),
        }
    }

    /// Whether it is a variable alone that has no value.
    fn is_absent(&self, values: &BTreeMap<&str, &str>) -> bool {
        let is_empty = |piece: &Piece| matches!(piece, Piece::Literal(text) if text.is_empty());
        let mut pieces = self.0.iter().filter(|piece| !is_empty(piece));
        matches!(
            (pieces.next(), pieces.next()),
            (Some(Piece::Variable { name, .. }), None) if !values.contains_key(name.as_str())
        )
    }

    fn resolve(&self, values: &BTreeMap<&str, &str>) -> Result<String, FetchError> {
        self.fill(|name, allows_slashes| {
            let value = values.get(name).copied().unwrap_or_default();
            if is_inside(value, allows_slashes) { Ok(value) } else { Err(FetchError::NotFound) }
        })
    }

    fn fill<'v>(
        &self,
        value: impl Fn(&str, bool) -> Result<&'v str, FetchError>,
    ) -> Result<String, FetchError> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => filled.push_str(text),
                Piece::Variable { name, allows_slashes } => filled.push_str(value(name, *allows_slashes)?),
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests;
