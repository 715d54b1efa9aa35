//! The grammar of RFC 6570, section 2, up to level 3: splits a text into literals and expressions.

use crate::class::Class;
use crate::error::UriTemplateError as Error;

/// One part of a template.
pub(super) enum Part<'t> {
    /// Literal text.
    Literal(&'t str),
    /// `{…}`, with at least one variable.
    Expression(Operator, Vec<&'t str>),
}

/// The type of an expression: RFC 6570, section 3.2.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    /// `{a,b}`
    Simple,
    /// `{+a}`
    Reserved,
    /// `{#a}`
    Fragment,
    /// `{.a,b}` and `{/a,b}`: each value after this character.
    Prefixed(char),
    /// `{;a,b}`, `{?a,b}` and `{&a,b}`: each value after its name.
    Named(char),
}

/// Splits a template into its parts.
pub(super) fn parts(text: &str) -> Result<Vec<Part<'_>>, Error> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (literal, after) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
        if !literal.is_empty() {
            check_literal(literal)?;
            parts.push(Part::Literal(literal));
        }
        rest = after;
        if let Some(body) = after.strip_prefix('{') {
            let (body, after) = body.split_once('}').ok_or(Error::Brace)?;
            parts.push(expression(body)?);
            rest = after;
        }
    }
    Ok(parts)
}

fn check_literal(literal: &str) -> Result<(), Error> {
    let mut characters = literal.chars();
    while let Some(character) = characters.next() {
        match character {
            '}' => return Err(Error::Brace),
            '%' if !takes_two_digits(&mut characters) => return Err(Error::Percent),
            '%' => {}
            _ if u8::try_from(character).is_ok_and(|c| LITERAL.contains(c)) => {}
            _ => return Err(Error::Character(character)),
        }
    }
    Ok(())
}

const LITERAL: Class = Class::UNRESERVED.union(Class::RESERVED);

fn takes_two_digits(characters: &mut std::str::Chars<'_>) -> bool {
    (0..2).all(|_| characters.next().is_some_and(|c| c.is_ascii_hexdigit()))
}

fn expression(body: &str) -> Result<Part<'_>, Error> {
    let operator = match body.chars().next() {
        Some('+') => Operator::Reserved,
        Some('#') => Operator::Fragment,
        Some(c @ ('.' | '/')) => Operator::Prefixed(c),
        Some(c @ (';' | '?' | '&')) => Operator::Named(c),
        Some(c @ ('=' | ',' | '!' | '@' | '|')) => return Err(Error::Operator(c)),
        _ => Operator::Simple,
    };
    let list = if operator == Operator::Simple { body } else { &body[1..] };
    let names: Vec<&str> = list.split(',').collect();
    names.iter().try_for_each(|name| check_name(name))?;
    if names.len() > 1 && matches!(operator, Operator::Reserved | Operator::Fragment) {
        return Err(Error::ReservedList(body.to_owned()));
    }
    Ok(Part::Expression(operator, names))
}

fn check_name(name: &str) -> Result<(), Error> {
    let plain = name.strip_suffix('*').or_else(|| name.split_once(':').map(|(plain, _)| plain));
    if !plain.unwrap_or(name).split('.').all(is_word) {
        return Err(Error::Name(name.to_owned()));
    }
    plain.map_or(Ok(()), |plain| Err(Error::Modifier(plain.to_owned())))
}

fn is_word(word: &str) -> bool {
    let mut characters = word.chars();
    while let Some(character) = characters.next() {
        let fits = match character {
            '%' => takes_two_digits(&mut characters),
            _ => character == '_' || character.is_ascii_alphanumeric(),
        };
        if !fits {
            return false;
        }
    }
    !word.is_empty()
}
