//! Statements with named parameters: `select … where city = {city}`. Values are bound and never become part of the text, which
//! excludes SQL injection.
//!
//! A `{name}` outside of quotes and comments is a parameter. The rest is left as it is, but what could end the sub-query
//! that the statement becomes, or hide where it ends, is refused: a `;`, a parenthesis without its counterpart, a quote or
//! comment without an end, a marker of parameters of the database's own.

/// The database whose quotes and comments are recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SqlDialect {
    Postgres,
    Sqlite,
}

/// A parsed statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    pieces: Vec<Piece>,
    /// The names of the parameters, each once.
    parameters: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// An index into `parameters`.
    Parameter(usize),
}

/// How many parameters a statement may have.
const MAX_PARAMETERS: usize = 256;

impl Statement {
    /// Parses a statement. `is_denied` is asked for each identifier, in lower case, whether it may not be used.
    ///
    /// # Errors
    /// Says what is wrong, to be continued from the name of a member.
    pub(super) fn parse(
        text: &str,
        dialect: SqlDialect,
        is_denied: fn(&str) -> bool,
    ) -> Result<Self, &'static str> {
        let trimmed = text.trim_end();
        let text = trimmed.strip_suffix(';').unwrap_or(trimmed);
        if text.trim().is_empty() {
            return Err("must be a statement");
        }
        if text.contains('\0') {
            return Err("must not contain NUL");
        }
        Lexer { text, at: 0, dialect, is_denied, depth: 0, copied: 0, found: Self::empty() }.run()
    }

    fn empty() -> Self {
        Self { pieces: Vec::new(), parameters: Vec::new() }
    }

    /// The names of the parameters, in the order of their numbers.
    pub(super) fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// The statement as a sub-query, with numbered parameters. Ends in a line break, so that a final comment ends.
    pub(super) fn sub_query(&self, marker: char) -> String {
        let mut text = String::from("(");
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Parameter(index) => {
                    text.push(marker);
                    text.push_str(&(index + 1).to_string());
                }
            }
        }
        text.push_str("\n)");
        text
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    dialect: SqlDialect,
    is_denied: fn(&str) -> bool,
    depth: usize,
    /// Up to where the text is in `found`.
    copied: usize,
    found: Statement,
}

impl<'a> Lexer<'a> {
    fn run(mut self) -> Result<Statement, &'static str> {
        while let Some(first) = self.rest().chars().next() {
            match first {
                '\'' => self.string(false)?,
                '"' => self.identifier('"')?,
                '`' if self.dialect == SqlDialect::Sqlite => self.identifier('`')?,
                '[' if self.dialect == SqlDialect::Sqlite => self.identifier(']')?,
                '-' if self.rest().starts_with("--") => self.skip_line(),
                '/' if self.rest().starts_with("/*") => self.comment()?,
                '(' => {
                    self.depth += 1;
                    self.at += 1;
                }
                ')' => {
                    self.depth = self.depth.checked_sub(1).ok_or("has a `)` without a `(`")?;
                    self.at += 1;
                }
                ';' => return Err("must be one statement, without `;`"),
                '{' => self.parameter()?,
                '}' => return Err("has a `}` without a `{`"),
                '$' if self.dialect == SqlDialect::Postgres => self.dollar_quoted()?,
                '?' | ':' | '@' | '$' | '#' if self.dialect == SqlDialect::Sqlite => {
                    return Err("must write parameters as `{name}`");
                }
                first if is_word(first) => self.word()?,
                other => self.at += other.len_utf8(),
            }
        }
        if self.depth > 0 {
            return Err("has a `(` without a `)`");
        }
        self.copy();
        Ok(self.found)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Moves behind the next occurrence of `end`, which is searched for from `offset`.
    fn skip_past(&mut self, offset: usize, end: &str) -> Result<(), &'static str> {
        let start = self.at + offset;
        let found = self.text[start..].find(end).ok_or("has a quote without an end")?;
        self.at = start + found + end.len();
        Ok(())
    }

    fn skip_line(&mut self) {
        self.at += self.rest().find(['\n', '\r']).unwrap_or(self.rest().len());
    }

    /// A string, at its first quote. A doubled quote does not end it.
    fn string(&mut self, escapes: bool) -> Result<(), &'static str> {
        let mut offset = 1;
        loop {
            let rest = self.rest().get(offset..).unwrap_or_default();
            let found = rest.find(['\'', '\\']).ok_or("has a quote without an end")?;
            offset += found + 1;
            match &rest[found..] {
                rest if rest.starts_with('\\') => {
                    if escapes {
                        offset += rest[1..].chars().next().map_or(0, char::len_utf8);
                    }
                }
                rest if rest.starts_with("''") => offset += 1,
                _ => break,
            }
        }
        self.at += offset;
        // A string goes on after a line break, with escapes or without as it began.
        if escapes && self.continues() {
            return Err("must not continue a string with escapes on another line");
        }
        Ok(())
    }

    /// Whether another quote follows, after white space and line comments.
    fn continues(&self) -> bool {
        let mut rest = self.rest().trim_start();
        while let Some(comment) = rest.strip_prefix("--") {
            rest = comment.find(['\n', '\r']).map_or("", |end| &comment[end..]).trim_start();
        }
        rest.starts_with('\'')
    }

    fn identifier(&mut self, end: char) -> Result<(), &'static str> {
        let start = self.at + 1;
        let mut end_text = [0; 4];
        let end_text: &str = end.encode_utf8(&mut end_text);
        self.skip_past(1, end_text)?;
        self.check(&self.text[start..self.at - end_text.len()])
    }

    /// Comments nest in PostgreSQL.
    fn comment(&mut self) -> Result<(), &'static str> {
        let mut depth = 0_usize;
        loop {
            let rest = self.rest();
            if rest.starts_with("/*") && (depth == 0 || self.dialect == SqlDialect::Postgres) {
                depth += 1;
                self.at += 2;
            } else if rest.starts_with("*/") {
                depth -= 1;
                self.at += 2;
                if depth == 0 {
                    return Ok(());
                }
            } else {
                self.at += rest.chars().next().ok_or("has a comment without an end")?.len_utf8();
            }
        }
    }

    fn dollar_quoted(&mut self) -> Result<(), &'static str> {
        let rest = self.rest();
        let tag = rest[1..].find('$').map(|end| &rest[..end + 2]);
        let is_tag = |tag: &&str| {
            let name = &tag[1..tag.len() - 1];
            !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_word)
        };
        let tag = tag.filter(is_tag).ok_or("must write parameters as `{name}`")?;
        self.skip_past(tag.len(), tag)
    }

    fn parameter(&mut self) -> Result<(), &'static str> {
        let rest = self.rest();
        let name = rest.find('}').map(|end| &rest[1..end]);
        let is_name = |name: &&str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c))
        };
        let name = name.filter(is_name).ok_or("has a `{` that begins no `{name}`")?;
        self.copy();
        let known = self.found.parameters.iter().position(|known| known == name);
        let index = known.unwrap_or(self.found.parameters.len());
        if known.is_none() {
            self.found.parameters.push(name.to_owned());
        }
        if self.found.parameters.len() > MAX_PARAMETERS {
            return Err("has too many parameters");
        }
        self.found.pieces.push(Piece::Parameter(index));
        self.at += name.len() + 2;
        self.copied = self.at;
        Ok(())
    }

    /// A keyword, an identifier without quotes, a number, or the prefix of a string.
    fn word(&mut self) -> Result<(), &'static str> {
        let rest = self.rest();
        let length = rest.find(|c: char| !is_word(c) && c != '$').unwrap_or(rest.len());
        let word = &rest[..length];
        self.at += length;
        if self.dialect == SqlDialect::Postgres {
            if word.eq_ignore_ascii_case("e") && self.rest().starts_with('\'') {
                return self.string(true);
            }
            if word.eq_ignore_ascii_case("u") && self.rest().starts_with("&\"") {
                return Err("must write identifiers without escapes");
            }
        }
        self.check(word)
    }

    fn check(&self, identifier: &str) -> Result<(), &'static str> {
        if (self.is_denied)(&identifier.to_lowercase()) {
            return Err("uses a function that is not allowed");
        }
        Ok(())
    }

    /// Appends the text since the last piece.
    fn copy(&mut self) {
        let text = &self.text[self.copied..self.at];
        if !text.is_empty() {
            self.found.pieces.push(Piece::Text(text.to_owned()));
        }
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric() || !c.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, dialect: SqlDialect) -> Result<(String, Vec<String>), &'static str> {
        let denied = |identifier: &str| identifier.starts_with("dblink");
        let statement = Statement::parse(text, dialect, denied)?;
        let marker = if dialect == SqlDialect::Postgres { '$' } else { '?' };
        Ok((statement.sub_query(marker), statement.parameters().to_vec()))
    }

    #[test]
    fn parameters_count_outside_quotes_and_comments() {
        let both = [
            ("select {a}, {b.c}, {a}", "(select $1, $2, $1\n)", "a b.c"),
            ("select '{a}', '''{a}', \"{a}\", {a};  ", "(select '{a}', '''{a}', \"{a}\", $1\n)", "a"),
            ("select 1 -- {a}", "(select 1 -- {a}\n)", ""),
            ("select 1 -- {a}\n, {b}", "(select 1 -- {a}\n, $1\n)", "b"),
            ("select /* {a} ' */ {b}", "(select /* {a} ' */ $1\n)", "b"),
            ("select ({a})", "(select ($1)\n)", "a"),
            ("select 'ü\\', {a}", "(select 'ü\\', $1\n)", "a"),
        ];
        for (text, expected, names) in both {
            let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
            assert_eq!(parse(text, SqlDialect::Postgres), Ok((expected.to_owned(), names.clone())), "{text}");
            assert_eq!(parse(text, SqlDialect::Sqlite), Ok((expected.replace('$', "?"), names)), "{text}");
        }
        let postgres = [
            ("select E'\\'{a}', {b}", "(select E'\\'{a}', $1\n)", "b"),
            ("select e'\\\\', {b}", "(select e'\\\\', $1\n)", "b"),
            ("select $${a}$$, $t$ {a} $$ ' $t$, {b}", "(select $${a}$$, $t$ {a} $$ ' $t$, $1\n)", "b"),
            ("select a$b$, {b}", "(select a$b$, $1\n)", "b"),
            ("select /* /* */ {a} */ {b}::int", "(select /* /* */ {a} */ $1::int\n)", "b"),
            ("select 'a'\n'{a}', {b}", "(select 'a'\n'{a}', $1\n)", "b"),
            ("select name'{a}', {b}", "(select name'{a}', $1\n)", "b"),
        ];
        for (text, expected, name) in postgres {
            assert_eq!(
                parse(text, SqlDialect::Postgres),
                Ok((expected.to_owned(), vec![name.to_owned()])),
                "{text}"
            );
        }
        let sqlite = [
            ("select [{a}], `{a}`, {b}", "(select [{a}], `{a}`, ?1\n)", "b"),
            ("select /* /* {a} */ {b}", "(select /* /* {a} */ ?1\n)", "b"),
        ];
        for (text, expected, name) in sqlite {
            assert_eq!(
                parse(text, SqlDialect::Sqlite),
                Ok((expected.to_owned(), vec![name.to_owned()])),
                "{text}"
            );
        }
    }

    #[test]
    fn what_could_leave_the_sub_query_is_refused() {
        let both = [
            ("", "must be a statement"),
            (" ;", "must be a statement"),
            ("select 1; select 2", "must be one statement, without `;`"),
            ("select 1;;", "must be one statement, without `;`"),
            ("select 1) q; drop table a; --", "has a `)` without a `(`"),
            ("select 1) q union select * from (select 2", "has a `)` without a `(`"),
            ("select (1", "has a `(` without a `)`"),
            ("select 'a", "has a quote without an end"),
            ("select 'a''", "has a quote without an end"),
            ("select \"a", "has a quote without an end"),
            ("select 1 /* a", "has a comment without an end"),
            ("select {}", "has a `{` that begins no `{name}`"),
            ("select {a", "has a `{` that begins no `{name}`"),
            ("select {a b}", "has a `{` that begins no `{name}`"),
            ("select a}", "has a `}` without a `{`"),
            ("select 1\0", "must not contain NUL"),
            ("select DBLink_connect('')", "uses a function that is not allowed"),
            ("select \"dblink\"('')", "uses a function that is not allowed"),
        ];
        for (text, expected) in both {
            assert_eq!(parse(text, SqlDialect::Postgres), Err(expected), "{text}");
            assert_eq!(parse(text, SqlDialect::Sqlite), Err(expected), "{text}");
        }
        let postgres = [
            ("select 1 /* /* */", "has a comment without an end"),
            ("select $1", "must write parameters as `{name}`"),
            ("select $1$ $1$", "must write parameters as `{name}`"),
            ("select $a$ $$", "has a quote without an end"),
            ("select E'a\\'", "has a quote without an end"),
            ("select E'a'\n'\\'; --'", "must not continue a string with escapes on another line"),
            ("select E'a' -- b\n '\\'", "must not continue a string with escapes on another line"),
            ("select u&\"d\\0061ta\"", "must write identifiers without escapes"),
        ];
        for (text, expected) in postgres {
            assert_eq!(parse(text, SqlDialect::Postgres), Err(expected), "{text}");
        }
        for text in ["select ?", "select ?1", "select :a", "select @a", "select $a"] {
            assert_eq!(parse(text, SqlDialect::Sqlite), Err("must write parameters as `{name}`"), "{text}");
        }
    }
}
