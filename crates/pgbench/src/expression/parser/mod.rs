//! Parser from tokens to code, with the precedence of pgbench's grammar.
//!
//! A Pratt parser (Top down operator precedence, 1973): one function reads operators with at least a given
//! binding power. Prefix operators are allowed before any operand, also of an operator with higher precedence:
//! `1 + NOT 2 = 3` is `1 + (NOT (2 = 3))`.

use super::functions::{Arity, Binary, Function, OPERATORS, Operation, SyntaxError};
use super::lexer::{Keyword, Lexer, Token};
use crate::effort;
use crate::value::Value;
use crate::variables::Names;

// Operators in ascending order of precedence.
/// Maximum nesting depth of operands, because the parser is recursive.
pub const DEPTH_MAX: usize = 400;

const ANY: u8 = 0;
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const IS: u8 = 4;
const COMPARISON: u8 = 5;
const BITS: u8 = 6;
const SUM: u8 = 7;
const PRODUCT: u8 = 8;
const SIGN: u8 = 9;

/// Parser of one expression.
pub struct Parser<'a, 'n> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    names: &'n mut Names,
    code: Vec<Operation>,
    depth: usize,
    /// Total number of operations moved by `>` and `>=`.
    moved: usize,
}

/// An infix operator.
#[derive(Clone, Copy)]
enum Infix {
    Operator(Binary),
    /// `>` and `>=`: the right side is evaluated first.
    Exchanged(Binary),
    And,
    Or,
}

impl<'a, 'n> Parser<'a, 'n> {
    /// Parses the complete expression at `at`. Returns its code and the position after its line.
    pub fn parse(
        text: &'a [u8],
        at: usize,
        names: &'n mut Names,
    ) -> Result<(Vec<Operation>, usize), SyntaxError> {
        let lexer = Lexer::new(text, at);
        let mut parser = Self { lexer, token: Token::End, names, code: Vec::new(), depth: 0, moved: 0 };
        match parser.whole() {
            Ok(()) => Ok((parser.code, parser.lexer.at())),
            Err(error) => Err(parser.read_line_out(error)),
        }
    }

    fn whole(&mut self) -> Result<(), SyntaxError> {
        self.advance()?;
        self.expression(ANY)?;
        self.expect(Token::End)
    }

    /// Reads the rest of the line, as pgbench does to show it. A lexical error there replaces the first error.
    fn read_line_out(&mut self, mut error: SyntaxError) -> SyntaxError {
        loop {
            match self.lexer.read() {
                Ok(Token::End) => break,
                Ok(_) => {}
                Err(later) => error = later,
            }
        }
        SyntaxError { line_end: self.lexer.at(), ..error }
    }

    fn advance(&mut self) -> Result<(), SyntaxError> {
        self.token = self.lexer.read()?;
        Ok(())
    }

    fn unexpected<T>(&self) -> Result<T, SyntaxError> {
        Err(self.lexer.error("syntax error", None))
    }

    fn expect(&mut self, token: Token<'static>) -> Result<(), SyntaxError> {
        if self.token != token {
            return self.unexpected();
        }
        if token == Token::End { Ok(()) } else { self.advance() }
    }

    /// Parses an operand and the operators after it with at least this precedence.
    fn expression(&mut self, strength: u8) -> Result<(), SyntaxError> {
        if self.depth >= DEPTH_MAX {
            return Err(self.lexer.error("memory exhausted", None));
        }
        self.depth += 1;
        let start = self.code.len();
        self.operand()?;
        let mut compared = false;
        loop {
            if IS >= strength && self.is_test()? {
                compared = false;
                continue;
            }
            let Some((infix, bound)) = self.infix().filter(|(_, bound)| *bound >= strength) else { break };
            if compared && bound == COMPARISON {
                return self.unexpected();
            }
            self.advance()?;
            self.right_side(infix, bound, start)?;
            compared = bound == COMPARISON;
        }
        self.depth -= 1;
        Ok(())
    }

    fn infix(&self) -> Option<(Infix, u8)> {
        let sign = match self.token {
            Token::Keyword(Keyword::And) => return Some((Infix::And, AND)),
            Token::Keyword(Keyword::Or) => return Some((Infix::Or, OR)),
            Token::Sign(">") => return Some((Infix::Exchanged(Binary::Less), COMPARISON)),
            Token::Sign(">=") => return Some((Infix::Exchanged(Binary::LessEqual), COMPARISON)),
            Token::Sign(sign) => sign,
            _ => return None,
        };
        let strength = match sign {
            "+" | "-" => SUM,
            "*" | "/" | "%" => PRODUCT,
            "<" | "<=" | "=" | "<>" => COMPARISON,
            _ => BITS,
        };
        let (_, operator) = OPERATORS.iter().find(|(known, _)| *known == sign)?;
        Some((Infix::Operator(*operator), strength))
    }

    /// Parses the right side of an operator whose left side is the code from `start`. All operators are
    /// left-associative.
    fn right_side(&mut self, infix: Infix, strength: u8, start: usize) -> Result<(), SyntaxError> {
        let middle = self.code.len();
        if matches!(infix, Infix::And | Infix::Or) {
            self.code.push(Operation::AndThen(0));
        }
        self.expression(strength + 1)?;
        let skip = (self.code.len() - middle) as u32;
        match infix {
            Infix::Operator(binary) => self.code.push(Operation::Binary(binary)),
            Infix::Exchanged(binary) => {
                self.exchange(start, middle)?;
                self.code.push(Operation::Binary(binary));
            }
            Infix::And => {
                self.code[middle] = Operation::AndThen(skip);
                self.code.push(Operation::AndEnd);
            }
            Infix::Or => {
                self.code[middle] = Operation::OrElse(skip);
                self.code.push(Operation::OrEnd);
            }
        }
        Ok(())
    }

    /// Moves the right side, the code from `middle`, before the left side.
    ///
    /// Nested operators move the same code repeatedly. The total is limited so that parsing stays linear.
    fn exchange(&mut self, start: usize, middle: usize) -> Result<(), SyntaxError> {
        self.moved += self.code.len() - start;
        effort::spend(self.code.len() - start);
        if self.moved > DEPTH_MAX * self.code.len() {
            return Err(self.lexer.error("memory exhausted", None));
        }
        self.code[start..].rotate_left(middle - start);
        Ok(())
    }

    /// Parses `IS [NOT] NULL`, `IS [NOT] TRUE`, `IS [NOT] FALSE`, `ISNULL` or `NOTNULL`, if it is next.
    fn is_test(&mut self) -> Result<bool, SyntaxError> {
        let Token::Keyword(keyword @ (Keyword::Is | Keyword::IsNull | Keyword::NotNull)) = self.token else {
            return Ok(false);
        };
        self.advance()?;
        let mut negated = keyword == Keyword::NotNull;
        let mut wanted = Value::Null;
        if keyword == Keyword::Is {
            if self.token == Token::Keyword(Keyword::Not) {
                negated = true;
                self.advance()?;
            }
            wanted = match self.token {
                Token::Keyword(Keyword::Null) => Value::Null,
                Token::Keyword(Keyword::True) => Value::Boolean(true),
                Token::Keyword(Keyword::False) => Value::Boolean(false),
                _ => return self.unexpected(),
            };
            self.advance()?;
        }
        self.code.push(Operation::Is(wanted));
        if negated {
            self.code.push(Operation::Not);
        }
        Ok(true)
    }
}

impl Parser<'_, '_> {
    /// Parses an operand.
    fn operand(&mut self) -> Result<(), SyntaxError> {
        let constant = match self.token {
            Token::Sign("(") => {
                self.advance()?;
                self.expression(ANY)?;
                return self.expect(Token::Sign(")"));
            }
            Token::Sign("+") => return self.prefixed(SIGN, None),
            Token::Sign("-") => return self.negation(),
            Token::Sign("~") => return self.prefixed(SUM, Some(Operation::Complement)),
            Token::Keyword(Keyword::Not) => return self.prefixed(NOT, Some(Operation::Not)),
            Token::Keyword(Keyword::Case) => return self.case(),
            Token::Word(word) => return self.call(word),
            Token::Variable(name) => {
                self.variable(name)?;
                return self.advance();
            }
            Token::Keyword(Keyword::Null) => Value::Null,
            Token::Keyword(Keyword::True) => Value::Boolean(true),
            Token::Keyword(Keyword::False) => Value::Boolean(false),
            Token::Int(int) => Value::Int(int),
            Token::Double(double) => Value::Double(double),
            _ => return self.unexpected(),
        };
        self.code.push(Operation::Constant(constant));
        self.advance()
    }

    fn prefixed(&mut self, strength: u8, operation: Option<Operation>) -> Result<(), SyntaxError> {
        self.advance()?;
        self.expression(strength)?;
        self.code.extend(operation);
        Ok(())
    }

    fn negation(&mut self) -> Result<(), SyntaxError> {
        self.advance()?;
        if self.token == Token::IntMaxPlusOne {
            self.code.push(Operation::Constant(Value::Int(i64::MIN)));
            return self.advance();
        }
        self.expression(SIGN)?;
        self.code.push(Operation::Negate);
        Ok(())
    }

    fn variable(&mut self, name: &[u8]) -> Result<(), SyntaxError> {
        let slot = self.names.intern(name).map_err(|_| self.lexer.error("too many variables", None))?;
        self.code.push(Operation::Variable(slot));
        Ok(())
    }

    /// Parses a function call. Errors are raised in pgbench's order: the name first, the number of arguments at
    /// the closing parenthesis.
    fn call(&mut self, word: &[u8]) -> Result<(), SyntaxError> {
        let Some((name, function, arity)) = Function::find(word) else {
            return Err(self.lexer.error("unexpected function name", Some(word)));
        };
        self.advance()?;
        self.expect(Token::Sign("("))?;
        let mut count = self.arguments()?;
        let wrong = |message| Err(self.lexer.error(message, Some(name.as_bytes())));
        match arity {
            Arity::OneOrMore if count == 0 => return wrong("at least one argument expected"),
            Arity::Exactly(wanted) if count != wanted => return wrong("unexpected number of arguments"),
            Arity::AndSeed(wanted) if count == wanted => {
                self.variable(b"default_seed")?;
                count += 1;
            }
            Arity::AndSeed(wanted) if count != wanted + 1 => return wrong("unexpected number of arguments"),
            _ => {}
        }
        self.code.push(Operation::Call(function, count));
        self.advance()
    }

    /// Parses arguments up to the closing parenthesis. The grammar allows a leading comma.
    fn arguments(&mut self) -> Result<u32, SyntaxError> {
        let mut count = 0;
        if !matches!(self.token, Token::Sign("," | ")")) {
            self.expression(ANY)?;
            count = 1;
        }
        while self.token == Token::Sign(",") {
            self.advance()?;
            self.expression(ANY)?;
            count += 1;
        }
        if self.token == Token::Sign(")") { Ok(count) } else { self.unexpected() }
    }

    /// Parses `CASE WHEN … THEN … [WHEN … THEN …]… [ELSE …] END`. Without ELSE it is null if no condition
    /// holds.
    fn case(&mut self) -> Result<(), SyntaxError> {
        self.advance()?;
        let mut ends = Vec::new();
        while self.token == Token::Keyword(Keyword::When) || ends.is_empty() {
            self.expect(Token::Keyword(Keyword::When))?;
            self.expression(ANY)?;
            let unless = self.code.len();
            self.code.push(Operation::Unless(0));
            self.expect(Token::Keyword(Keyword::Then))?;
            self.expression(ANY)?;
            ends.push(self.code.len());
            self.code.push(Operation::CaseSkip(0));
            self.code[unless] = Operation::Unless((self.code.len() - unless - 1) as u32);
        }
        if self.token == Token::Keyword(Keyword::Else) {
            self.advance()?;
            self.expression(ANY)?;
        } else {
            self.code.push(Operation::Constant(Value::Null));
        }
        for &end in &ends {
            self.code[end] = Operation::CaseSkip((self.code.len() - end) as u32);
        }
        self.code.push(Operation::CaseEnd(ends.len() as u32));
        self.expect(Token::Keyword(Keyword::End))
    }
}
