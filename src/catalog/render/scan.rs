//! Scans the tokens of a template before it is parsed: its statements, and the depth of its nesting.
//!
//! The engine's parser, its compiler and the drop of its syntax tree recurse, partly without a limit (`not not …`, `elif`,
//! `a ~ a ~ …`). The tokenizer does not recurse, so nesting is bounded here before the source is parsed.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::error::{RenderError, excerpt};
use super::limits::{MAX_BLOCKS, MAX_BRACKETS, MAX_BRANCHES, MAX_OPERATORS};

/// Refuses statements that are not allowed, blocks that are not closed, and nesting that is too deep.
pub(super) fn scan(source: &str, syntax: &SyntaxConfig) -> Result<(), RenderError> {
    let mut reader = Scan { line: 1, ..Scan::default() };
    for next in tokenize(source, false, syntax.clone()) {
        let (token, span) = next.map_err(|error| RenderError::syntax(&error, reader.line))?;
        reader.line = usize::from(span.start_line);
        reader.take(&token)?;
    }
    reader.end()
}

#[derive(Debug, Default)]
struct Scan {
    /// The line of the current token, for error messages.
    line: usize,
    /// The blocks that are open, the outermost first.
    open: Vec<Block>,
    /// Operators, filters and brackets in the current tag.
    operators: usize,
    /// Brackets that are open.
    brackets: usize,
    /// Whether the next token names a statement.
    at_statement: bool,
}

#[derive(Debug)]
struct Block {
    keyword: &'static str,
    line: usize,
    /// How many `elif` it has.
    branches: usize,
}

impl Scan {
    fn take(&mut self, token: &Token<'_>) -> Result<(), RenderError> {
        match token {
            Token::VariableStart | Token::BlockStart => {
                self.operators = 0;
                self.brackets = 0;
                self.at_statement = matches!(token, Token::BlockStart);
                Ok(())
            }
            Token::Ident(keyword) if std::mem::take(&mut self.at_statement) => self.statement(keyword),
            _ if self.at_statement => Err(self.refused("a tag `{% … %}` must begin with a statement")),
            token if adds_depth(token) => self.operator(token),
            _ => Ok(()),
        }
    }

    fn operator(&mut self, token: &Token<'_>) -> Result<(), RenderError> {
        self.operators += 1;
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => self.brackets += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                self.brackets = self.brackets.saturating_sub(1);
            }
            _ => {}
        }
        self.at_most(self.operators, MAX_OPERATORS, "operators, filters and brackets in one tag")?;
        self.at_most(self.brackets, MAX_BRACKETS, "brackets within each other")
    }

    fn statement(&mut self, keyword: &str) -> Result<(), RenderError> {
        match keyword {
            "if" => self.open("if"),
            "for" => self.open("for"),
            "elif" | "else" => self.branch(keyword),
            "endif" => self.close("if", keyword),
            "endfor" => self.close("for", keyword),
            other => Err(self.refused(format!(
                "the statement `{}` is not allowed; there are `if`, `elif`, `else` and `for`",
                excerpt(other)
            ))),
        }
    }

    fn open(&mut self, keyword: &'static str) -> Result<(), RenderError> {
        self.open.push(Block { keyword, line: self.line, branches: 0 });
        self.at_most(self.open.len(), MAX_BLOCKS, "blocks within each other")
    }

    fn branch(&mut self, keyword: &str) -> Result<(), RenderError> {
        match self.open.last_mut() {
            Some(block) if block.keyword == "if" => block.branches += usize::from(keyword == "elif"),
            _ => return Err(self.refused(format!("`{keyword}` is outside of an `if`"))),
        }
        let branches = self.open.iter().map(|block| block.branches).sum();
        self.at_most(branches, MAX_BRANCHES, "`elif` in an `if` and those around it")
    }

    fn close(&mut self, opened: &str, keyword: &str) -> Result<(), RenderError> {
        match self.open.pop() {
            Some(block) if block.keyword == opened => Ok(()),
            Some(Block { keyword: inner, line, .. }) => {
                Err(self.refused(format!("`{keyword}` cannot end the `{inner}` of line {line}")))
            }
            None => Err(self.refused(format!("`{keyword}` ends nothing"))),
        }
    }

    fn end(self) -> Result<(), RenderError> {
        match self.open.last() {
            Some(Block { keyword, line, .. }) => {
                Err(RenderError::refused(*line, format!("this `{keyword}` is never ended by `end{keyword}`")))
            }
            None => Ok(()),
        }
    }

    fn at_most(&self, found: usize, limit: usize, what: &str) -> Result<(), RenderError> {
        if found <= limit {
            return Ok(());
        }
        Err(self.refused(format!("at most {limit} {what} are allowed; make the template simpler")))
    }

    fn refused(&self, reason: impl Into<String>) -> RenderError {
        RenderError::refused(self.line, reason)
    }
}

/// Whether a token can increase the recursion depth of the parser or of the syntax tree. Literals, names and commas
/// cannot.
fn adds_depth(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(name) => matches!(*name, "not" | "and" | "or" | "in" | "is" | "if" | "else"),
        Token::TemplateData(_)
        | Token::VariableEnd
        | Token::BlockEnd
        | Token::Comma
        | Token::Str(_)
        | Token::String(_)
        | Token::Int(_)
        | Token::Int128(_)
        | Token::Float(_) => false,
        _ => true,
    }
}
