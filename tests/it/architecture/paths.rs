//! The paths in a source file, as far as they can be recognised without a compiler. Paths that begin with `crate`, `self`
//! or `super` are resolved; all others are returned unchanged.

/// A path, and whether the file re-exports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: String,
    pub(super) reexport: bool,
}

/// The paths of more than one segment, and all paths in `use` declarations, in `text`, the file of `module`.
pub(super) fn named(module: &[String], text: &str) -> Vec<Named> {
    let tokens = tokens(text);
    Reader { tokens: &tokens, at: 0, module: module.to_vec(), inner: Vec::new(), depth: 0, found: Vec::new() }
        .read()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Name(String),
    /// `::`
    Step,
    Sign(char),
}

/// Identifiers and punctuation, without comments, literals and lifetimes.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let name = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let length = if let Some(length) = skipped(rest, &rest[..name]) {
            length
        } else if name > 0 {
            tokens.push(Token::Name(rest[..name].to_owned()));
            name
        } else if rest.starts_with("::") {
            tokens.push(Token::Step);
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of the comment, literal or lifetime at the beginning of `rest`; `name` is the identifier there, if any.
fn skipped(rest: &str, name: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    let after = &rest[name.len()..];
    match name {
        "r" | "br" | "cr" if after.starts_with(['#', '"']) => Some(name.len() + raw_string(after)?),
        "" | "b" | "c" if after.starts_with('"') => Some(name.len() + quoted(after, '"')),
        "" | "b" if after.starts_with('\'') => Some(name.len() + character_or_lifetime(after)),
        _ => None,
    }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let change = match rest.get(at..at + 2) {
            Some("/*") => 1,
            Some("*/") => -1,
            _ => 0,
        };
        depth += change;
        at += if change == 0 { 1 } else { 2 };
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length from the `#`s before the first quote to those after the last; `None` for a raw identifier such as `r#use`.
fn raw_string(after: &str) -> Option<usize> {
    let marks = after.bytes().take_while(|byte| *byte == b'#').count();
    let body = after[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    Some(marks + 1 + body.find(&end).map_or(body.len(), |at| at + end.len()))
}

fn quoted(after: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in after.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    after.len()
}

fn character_or_lifetime(after: &str) -> usize {
    let mut inside = after.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(after, '\''),
        // A lifetime: its name is not part of a path.
        _ => 1 + after[1..].find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(after.len() - 1),
    }
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
    module: Vec<String>,
    /// The inline modules around the current position, each with its depth of braces.
    inner: Vec<(String, usize)>,
    depth: usize,
    found: Vec<Named>,
}

impl Reader<'_> {
    fn read(mut self) -> Vec<Named> {
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Name(name) if name == "use" => self.read_use(),
                Token::Name(name) if name == "mod" => self.read_mod(),
                Token::Name(_) | Token::Step => self.read_path(),
                Token::Sign(sign) => {
                    self.read_brace(*sign);
                    self.at += 1;
                }
            }
        }
        self.found
    }

    fn read_brace(&mut self, sign: char) {
        match sign {
            '{' => self.depth += 1,
            '}' => {
                self.depth = self.depth.saturating_sub(1);
                self.inner.pop_if(|(_, around)| *around == self.depth);
            }
            _ => {}
        }
    }

    fn read_mod(&mut self) {
        self.at += 1;
        if let (Some(Token::Name(name)), Some(Token::Sign('{'))) =
            (self.tokens.get(self.at), self.tokens.get(self.at + 1))
        {
            self.inner.push((name.clone(), self.depth));
        }
        self.at += 1;
    }

    fn read_use(&mut self) {
        // `pub use` and `pub(…) use`; a private `use` re-exports nothing.
        let before = self.at.checked_sub(1).and_then(|before| self.tokens.get(before));
        let restricted = matches!(before, Some(Token::Sign(')')));
        let reexport = restricted || before == Some(&Token::Name("pub".to_owned()));
        self.at += 1;
        self.read_tree(&[], reexport);
    }

    /// One branch of a `use`, after `prefix`.
    fn read_tree(&mut self, prefix: &[String], reexport: bool) {
        let mut path = prefix.to_vec();
        loop {
            match self.tokens.get(self.at) {
                Some(Token::Name(name)) if name == "as" => self.at += 2,
                Some(Token::Name(name)) => {
                    path.push(name.clone());
                    self.at += 1;
                }
                Some(Token::Step | Token::Sign('*')) => self.at += 1,
                Some(Token::Sign('{')) => {
                    self.at += 1;
                    while !matches!(self.tokens.get(self.at), Some(Token::Sign('}')) | None) {
                        self.read_tree(&path, reexport);
                        self.at += usize::from(self.tokens.get(self.at) == Some(&Token::Sign(',')));
                    }
                    self.at += 1;
                    return;
                }
                _ => break,
            }
        }
        self.keep(&path, reexport);
    }

    /// A path in a type or an expression. After a dot it is the name of a field or a method.
    fn read_path(&mut self) {
        let member = self.at > 0 && self.tokens[self.at - 1] == Token::Sign('.');
        let mut path = Vec::new();
        loop {
            match (self.tokens.get(self.at), self.tokens.get(self.at + 1)) {
                (Some(Token::Step), _) => self.at += 1,
                (Some(Token::Name(name)), next) => {
                    path.push(name.clone());
                    self.at += 1;
                    if next != Some(&Token::Step) {
                        break;
                    }
                }
                _ => break,
            }
        }
        if path.len() > 1 && !member {
            self.keep(&path, false);
        }
    }

    fn keep(&mut self, path: &[String], reexport: bool) {
        let here: Vec<_> =
            self.module.iter().chain(self.inner.iter().map(|(name, _)| name)).cloned().collect();
        let ups = path.iter().take_while(|step| *step == "super").count();
        let whole = match path.first().map(String::as_str) {
            Some("crate" | "waggle") => [&["crate".to_owned()], &path[1..]].concat(),
            Some("self") => {
                let ups = path[1..].iter().take_while(|step| *step == "super").count();
                [&here[..here.len().saturating_sub(ups)], &path[1 + ups..]].concat()
            }
            Some("super") => [&here[..here.len().saturating_sub(ups)], &path[ups..]].concat(),
            _ => path.to_vec(),
        };
        // `use a::b::{self}` refers to `a::b`.
        let whole: Vec<_> = whole.into_iter().filter(|step| step != "self").collect();
        self.found.push(Named { path: whole.join("::"), reexport });
    }
}
