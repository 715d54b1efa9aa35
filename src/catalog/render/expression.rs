//! The allow-list, on the syntax tree: expressions.

use minijinja::machinery::ast::{
    BinOp, BinOpKind, CallArg, Compare, CompareOpKind, Const, Expr, Filter, GetAttr, List, Spanned,
    UnaryOpKind,
};
use minijinja::value::ValueKind;

use super::analysis::{Check, Position, Shape};
use super::cost::Bound;
use super::error::{RenderError, excerpt};
use super::filters;

/// How much building a text takes for each byte: a buffer that grows by doubling, and a copy that is shared.
const BUILT: u64 = 3;

/// The memory of one item of a list, in bytes.
const ITEM: u64 = 32;

type Checked<'a> = Result<Shape<'a>, RenderError>;

impl<'a> Check<'a, '_> {
    pub(super) fn expression(&mut self, expression: &Expr<'a>, position: Position) -> Checked<'a> {
        let line = usize::from(expression.span().start_line);
        let refused = |reason: &str| Err(RenderError::refused(line, reason));
        match expression {
            Expr::Var(variable) => self.name(variable.id, line),
            Expr::Const(constant) => self.constant(constant, line),
            Expr::UnaryOp(operation) => match (&operation.op, &operation.expr) {
                (UnaryOpKind::Not, operand) => self.not(operand),
                (UnaryOpKind::Neg, Expr::Const(constant)) if is_number(constant) => {
                    self.constant(constant, line)
                }
                (UnaryOpKind::Neg, _) => refused("`-` is allowed before a number only"),
            },
            Expr::BinOp(operation) => self.operation(operation, position),
            Expr::Compare(chain) => self.chain(chain),
            Expr::Filter(filter) => self.filter(filter, position),
            Expr::GetAttr(attribute) => self.attribute(attribute, line),
            Expr::IfExpr(_) => refused("`… if … else …` is not allowed; use `{% if … %}`"),
            Expr::Test(_) => refused("`is` is not allowed; every argument is defined, compare it with `''`"),
            Expr::Call(_) => refused("nothing can be called"),
            Expr::GetItem(_) | Expr::Slice(_) => refused("`[…]` is not allowed behind a value"),
            Expr::List(_) => refused("a list is allowed only behind `in`"),
            Expr::Tuple(_) => refused("`(…, …)` is not allowed; write a list as `[…]`"),
            Expr::Map(_) => refused("`{…}` is not allowed"),
        }
    }

    fn name(&mut self, name: &'a str, line: usize) -> Checked<'a> {
        self.step(1)?;
        if name == "loop" {
            return Err(RenderError::refused(line, LOOP));
        }
        if let Some(local) = self.locals.iter().rfind(|local| local.name == name) {
            return Ok(local.shape.clone());
        }
        if self.declared.contains(name) {
            self.copy(Bound::mention(name));
            return Ok(Shape::text(Bound::name(name)));
        }
        Err(RenderError::undeclared(line, name))
    }

    fn constant(&mut self, constant: &Const, line: usize) -> Checked<'a> {
        self.step(1)?;
        match (constant.value.as_str(), constant.value.kind()) {
            (Some(text), _) => Ok(Shape::text(Bound::length(text))),
            (None, ValueKind::Bool) => Ok(Shape::word()),
            // With its sign.
            (None, ValueKind::Number) if is_number(constant) => {
                Ok(Shape { size: Bound::fixed(constant.value.to_string().len() as u64 + 1), is_text: false })
            }
            (None, ValueKind::Number) => Err(RenderError::refused(line, "this number is too large")),
            _ => Err(RenderError::refused(line, "`none` is not allowed; an argument not given is `''`")),
        }
    }

    fn not(&mut self, operand: &Expr<'a>) -> Checked<'a> {
        self.expression(operand, Position::Inside)?;
        self.step(1)?;
        Ok(Shape::word())
    }

    fn operation(&mut self, operation: &Spanned<BinOp<'a>>, position: Position) -> Checked<'a> {
        let (left, right) = (&operation.left, &operation.right);
        let line = usize::from(operation.span().start_line);
        let arithmetic = |sign| {
            let reason = format!("`{sign}` is not allowed; there is no arithmetic, and `~` joins texts");
            Err(RenderError::refused(line, reason))
        };
        match operation.op {
            BinOpKind::Concat => self.concatenation(left, right, line, position),
            BinOpKind::ScAnd | BinOpKind::ScOr => self.choice(left, right),
            BinOpKind::In => self.membership(left, right),
            BinOpKind::Eq
            | BinOpKind::Ne
            | BinOpKind::Lt
            | BinOpKind::Lte
            | BinOpKind::Gt
            | BinOpKind::Gte => self.comparison(left, right),
            BinOpKind::Add => arithmetic("+"),
            BinOpKind::Sub => arithmetic("-"),
            BinOpKind::Mul => arithmetic("*"),
            BinOpKind::Div => arithmetic("/"),
            BinOpKind::FloorDiv => arithmetic("//"),
            BinOpKind::Rem => arithmetic("%"),
            BinOpKind::Pow => arithmetic("**"),
        }
    }

    fn concatenation(
        &mut self,
        left: &Expr<'a>,
        right: &Expr<'a>,
        line: usize,
        position: Position,
    ) -> Checked<'a> {
        if position != Position::Output {
            return Err(RenderError::refused(
                line,
                "`~` is allowed in `{{ … }}` only, outside other operators",
            ));
        }
        let left = self.expression(left, position)?;
        let right = self.expression(right, position)?;
        let size = left.size.plus(right.size);
        self.copy(size.clone().times(BUILT));
        self.step(1)?;
        Ok(Shape::text(size))
    }

    fn choice(&mut self, left: &Expr<'a>, right: &Expr<'a>) -> Checked<'a> {
        let left = self.expression(left, Position::Inside)?;
        let right = self.expression(right, Position::Inside)?;
        self.step(1)?;
        Ok(left.or(right))
    }

    fn comparison(&mut self, left: &Expr<'a>, right: &Expr<'a>) -> Checked<'a> {
        let left = self.expression(left, Position::Inside)?;
        let right = self.expression(right, Position::Inside)?;
        self.copy(left.size.shorter(&right.size).clone());
        self.step(1)?;
        Ok(Shape::word())
    }

    /// `left in right`.
    fn membership(&mut self, left: &Expr<'a>, right: &Expr<'a>) -> Checked<'a> {
        let needle = self.expression(left, Position::Inside)?;
        let size = self.haystack(right)?;
        self.copy(size.plus(needle.size));
        self.step(1)?;
        Ok(Shape::word())
    }

    /// The right operand of `in`: a list, or text.
    fn haystack(&mut self, expression: &Expr<'a>) -> Result<Bound<'a>, RenderError> {
        if let Expr::List(list) = expression {
            let item = self.list(list)?;
            return Ok(item.size.times(list.items.len() as u64));
        }
        let text = self.expression(expression, Position::Inside)?;
        if text.is_text {
            return Ok(text.size);
        }
        let line = usize::from(expression.span().start_line);
        Err(RenderError::refused(line, "the right side of `in` must be a list like `['a', 'b']`, or a text"))
    }

    /// `a < b <= c`: each but the last keeps its right side and jumps.
    fn chain(&mut self, chain: &Compare<'a>) -> Checked<'a> {
        let mut left = self.expression(&chain.expr, Position::Inside)?.size;
        for link in &chain.ops {
            let (right, compared) = match link.op {
                CompareOpKind::In | CompareOpKind::NotIn => {
                    let right = self.haystack(&link.expr)?;
                    let both = right.clone().plus(left);
                    (right, both)
                }
                _ => {
                    let right = self.expression(&link.expr, Position::Inside)?.size;
                    let shorter = left.shorter(&right).clone();
                    (right, shorter)
                }
            };
            self.copy(compared);
            self.step(3)?;
            left = right;
        }
        self.step(3)?;
        Ok(Shape::word())
    }

    fn filter(&mut self, filter: &Spanned<Filter<'a>>, position: Position) -> Checked<'a> {
        let line = usize::from(filter.span().start_line);
        let Some(subject) = &filter.expr else {
            return Err(RenderError::refused(line, "a filter must follow a value"));
        };
        let subject = self.expression(subject, position)?;
        if filter.name == filters::DEFAULT {
            return self.default(subject, filter, line);
        }
        let Some(known) = filters::find(filter.name) else {
            let reason = format!(
                "the filter `{}` is not allowed; there are `default`, `upper`, `lower`, `trim`, `length` and `tojson`",
                excerpt(filter.name)
            );
            return Err(RenderError::refused(line, reason));
        };
        if !filter.args.is_empty() {
            return Err(RenderError::refused(
                line,
                format!("the filter `{}` takes no arguments", known.name),
            ));
        }
        let made = subject.size.clone().times(known.growth).plus(Bound::fixed(known.extra));
        self.copy(made.clone().times(BUILT).plus(subject.size));
        self.step(1)?;
        Ok(Shape { size: made, is_text: known.is_text })
    }

    fn default(&mut self, subject: Shape<'a>, filter: &Filter<'a>, line: usize) -> Checked<'a> {
        let [CallArg::Pos(other)] = filter.args.as_slice() else {
            return Err(RenderError::refused(
                line,
                "the filter `default` takes one argument, like `default('none')`",
            ));
        };
        let other = self.expression(other, Position::Inside)?;
        self.step(1)?;
        Ok(subject.or(other))
    }

    fn attribute(&mut self, attribute: &GetAttr<'a>, line: usize) -> Checked<'a> {
        let of_loop = matches!(&attribute.expr, Expr::Var(variable) if variable.id == "loop");
        if !of_loop || !matches!(attribute.name, "index" | "index0" | "first" | "last") {
            return Err(RenderError::refused(line, LOOP));
        }
        if self.locals.is_empty() {
            return Err(RenderError::refused(line, "`loop` is available inside a `for` only"));
        }
        self.step(2)?;
        Ok(Shape::word())
    }

    /// A list of literals and names: the maximum length of its items.
    pub(super) fn list(&mut self, list: &Spanned<List<'a>>) -> Checked<'a> {
        let mut items: Option<Shape<'a>> = None;
        for item in &list.items {
            if !is_plain(item) {
                let line = usize::from(item.span().start_line);
                return Err(RenderError::refused(
                    line,
                    "a list holds texts, numbers, `true`, `false` and names only",
                ));
            }
            let shape = self.expression(item, Position::Inside)?;
            items = Some(match items {
                Some(items) => items.or(shape),
                None => shape,
            });
        }
        self.copy(Bound::fixed(ITEM.saturating_mul(list.items.len() as u64)));
        self.step(1)?;
        Ok(items.unwrap_or_else(Shape::word))
    }
}

/// The message about `loop` and attributes.
const LOOP: &str = "attributes are not allowed but `loop.index`, `loop.index0`, `loop.first` and `loop.last`";

fn is_plain(item: &Expr<'_>) -> bool {
    match item {
        Expr::Var(_) | Expr::Const(_) => true,
        Expr::UnaryOp(operation) => matches!(&operation.expr, Expr::Const(constant) if is_number(constant)),
        _ => false,
    }
}

/// Whether it is a number that prints, negates and is JSON without surprises: 64 bits, finite.
fn is_number(constant: &Const) -> bool {
    let value = &constant.value;
    value.kind() == ValueKind::Number
        && (value.as_i64().is_some()
            || f64::try_from(value.clone()).is_ok_and(f64::is_finite) && !value.is_integer())
}
