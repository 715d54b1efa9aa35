//! The part of YAML 1.2 that every reader of skills accepts, as a [`Value`].
//!
//! The scanner's tokens show how things are written, the parser's events what they mean: what is refused for its notation is
//! found in the tokens first.

use granit_parser::{
    Event, Marker, Options, Parser, ScalarStyle, ScanError, Scanner, Span, StrInput, StructureStyle,
    TokenType,
};

use crate::error::FrontmatterError;
use crate::scalar::resolve;
use crate::value::Value;

/// The maximum depth of a collection; the outermost mapping has depth 0.
const MAX_DEPTH: usize = 32;

/// The line of the file that the first line of the frontmatter is.
const FIRST_LINE: usize = 2;

fn line_of(span: &Span) -> usize {
    // The parser counts from 1.
    span.start.line() + FIRST_LINE - 1
}

fn failed(error: &ScanError) -> FrontmatterError {
    let line = error.marker().line() + FIRST_LINE - 1;
    FrontmatterError::Yaml { line, message: error.info() }
}

/// Reads a mapping.
///
/// # Errors
/// [`FrontmatterError`].
pub(crate) fn read(yaml: &str) -> Result<Value, FrontmatterError> {
    check_notation(yaml)?;
    let mut reader = Reader { parser: Parser::new_from_str_with_options(yaml, options()), yaml };
    let (mut event, mut span) = reader.next()?;
    while matches!(event, Event::StreamStart | Event::DocumentStart(..)) {
        (event, span) = reader.next()?;
    }
    let line = line_of(&span);
    let value = match event {
        Event::MappingStart(..) => reader.value(event, &span, 0)?,
        Event::StreamEnd => Value::Object(Vec::new()),
        _ => return Err(FrontmatterError::NotAMapping(line)),
    };
    for event in reader.parser.by_ref() {
        match event.map_err(|error| failed(&error))? {
            (Event::DocumentEnd | Event::StreamEnd, _) => {}
            (_, span) => {
                return Err(FrontmatterError::Unsupported {
                    line: line_of(&span),
                    what: "several documents are",
                });
            }
        }
    }
    Ok(value)
}

fn options() -> Options {
    granit_parser::options! {
        strict_indentation: true,
        disallow_directives: true,
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH + 2,
        block_nesting_limit: MAX_DEPTH + 2,
    }
}

/// Refuses what readers of skills refuse for the way it is written.
fn check_notation(yaml: &str) -> Result<(), FrontmatterError> {
    let mut flows = Vec::new();
    // Where the previous token ends: a block scalar begins after its header.
    let mut previous = Span::default();
    let mut scanner = Scanner::with_options(StrInput::new(yaml), options());
    let refused = |span: &Span, what| Err(FrontmatterError::Unsupported { line: line_of(span), what });
    for token in scanner.by_ref() {
        let (span, token) = token.map_err(|error| failed(&error))?.into_parts();
        match token {
            TokenType::Anchor(_) => return refused(&span, "anchors are"),
            TokenType::Alias(_) => return refused(&span, "aliases are"),
            TokenType::Tag(..) => return refused(&span, "tags are"),
            TokenType::DocumentStart | TokenType::DocumentEnd => {
                return refused(&span, "markers of documents are");
            }
            TokenType::Key if rest(yaml, &span.start).starts_with('?') => {
                return refused(&span, "keys with ? are");
            }
            TokenType::FlowSequenceStart | TokenType::FlowMappingStart => flows.push(span.start.line()),
            TokenType::FlowSequenceEnd | TokenType::FlowMappingEnd
                if flows.pop().is_some_and(|line| line != span.end.line()) =>
            {
                return refused(&span, "flow collections of several lines are");
            }
            TokenType::Scalar(ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted, _)
                if span.start.line() != span.end.line() =>
            {
                return refused(&span, "quoted values of several lines are");
            }
            TokenType::Scalar(ScalarStyle::Literal | ScalarStyle::Folded, _)
                if has_indentation_indicator(rest(yaml, &previous.end)) =>
            {
                return refused(&previous, "indentation indicators are");
            }
            _ => {}
        }
        previous = span;
    }
    Ok(())
}

/// Whether the header of a block scalar, which follows, has an indentation indicator.
fn has_indentation_indicator(mut text: &str) -> bool {
    loop {
        // The indicator before it, which is not part of a token.
        text = text.trim_start_matches(|before: char| before.is_whitespace() || ":-".contains(before));
        match text.strip_prefix('#') {
            Some(comment) => text = comment.split_once('\n').map_or("", |(_, rest)| rest),
            None => break,
        }
    }
    let header = text.split(['#', '\n']).next().unwrap_or_default();
    header.contains(|character: char| character.is_ascii_digit())
}

/// The text from a position.
fn rest<'y>(yaml: &'y str, from: &Marker) -> &'y str {
    from.byte_offset().and_then(|start| yaml.get(start..)).unwrap_or_default()
}

struct Reader<'y> {
    parser: Parser<'y, StrInput<'y>>,
    yaml: &'y str,
}

impl<'y> Reader<'y> {
    fn next(&mut self) -> Result<(Event<'y>, Span), FrontmatterError> {
        let ended = FrontmatterError::Yaml { line: FIRST_LINE, message: "unexpected end".to_owned() };
        self.parser.next().ok_or(ended)?.map_err(|error| failed(&error))
    }

    fn value(&mut self, event: Event<'y>, span: &Span, depth: usize) -> Result<Value, FrontmatterError> {
        match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => {
                let number = || FrontmatterError::Number { line: line_of(span), text: text.to_string() };
                resolve(&text).ok_or_else(number)
            }
            Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
            Event::SequenceStart(..) | Event::MappingStart(..) if depth > MAX_DEPTH => {
                Err(FrontmatterError::TooDeep(line_of(span)))
            }
            Event::SequenceStart(..) => self.list(depth),
            Event::MappingStart(StructureStyle::Flow, ..)
                if !rest(self.yaml, &span.start).starts_with('{') =>
            {
                Err(FrontmatterError::Unsupported {
                    line: line_of(span),
                    what: "mappings in a flow sequence without braces are",
                })
            }
            Event::MappingStart(..) => self.object(depth),
            _ => Err(FrontmatterError::NotAMapping(line_of(span))),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, FrontmatterError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                (event, span) => items.push(self.value(event, &span, depth + 1)?),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, FrontmatterError> {
        let mut members: Vec<(String, Value)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        loop {
            let (event, span) = self.next()?;
            let line = line_of(&span);
            let key = match event {
                Event::MappingEnd => return Ok(Value::Object(members)),
                Event::Scalar(text, ScalarStyle::Plain, ..) => match resolve(&text) {
                    Some(Value::String(key)) => key,
                    _ => return Err(FrontmatterError::Key(line)),
                },
                Event::Scalar(text, ..) => text.into_owned(),
                _ => return Err(FrontmatterError::Key(line)),
            };
            if key == "__proto__" {
                return Err(FrontmatterError::Unsupported { line, what: "the key __proto__ is" });
            }
            if !seen.insert(key.clone()) {
                return Err(FrontmatterError::Duplicate { line, key });
            }
            let (event, span) = self.next()?;
            let value = self.value(event, &span, depth + 1)?;
            members.push((key, value));
        }
    }
}
