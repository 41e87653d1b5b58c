//! From tokens to code, with the precedence of pgbench's grammar.
//!
//! A binding strength for each operator, and one function that reads operators as long as they bind strongly enough
//! (Pratt: Top down operator precedence, 1973). Prefix operators may stand before any operand, also one of an operator
//! that binds more strongly: `1 + NOT 2 = 3` is `1 + (NOT (2 = 3))`.

mod operand;

use super::code::{Binary, Operation};
use super::error::SyntaxError;
use super::lexer::{Keyword, Lexer, Token};
use crate::effort;
use crate::value::Value;
use crate::variables::Names;

// Operators from the weakest to the strongest.
/// How deeply operands can be nested: reading them recurses.
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

/// Reads one expression.
pub struct Parser<'a, 'n> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    names: &'n mut Names,
    code: Vec<Operation>,
    depth: usize,
    /// How many operations `>` and `>=` have moved, each as often as it was.
    moved: usize,
}

/// What an operator between two operands does, and how strongly it binds.
#[derive(Clone, Copy)]
enum Infix {
    Operator(Binary),
    /// `>` and `>=`: the right side is evaluated first.
    Exchanged(Binary),
    And,
    Or,
}

impl<'a, 'n> Parser<'a, 'n> {
    /// Reads the whole expression that begins at `at`, and gives its code and the place behind its line.
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

    /// pgbench reads the rest of the line to show it, and an error of a token in there takes the place of the first.
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

    /// An operand, and what follows it and binds at least as strongly as `strength`.
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
        use Binary::{
            Add, BitAnd, BitOr, BitXor, Divide, Equal, Less, LessEqual, Modulo, Multiply, NotEqual,
            ShiftLeft, ShiftRight, Subtract,
        };
        let (binary, strength) = match self.token {
            Token::Keyword(Keyword::And) => return Some((Infix::And, AND)),
            Token::Keyword(Keyword::Or) => return Some((Infix::Or, OR)),
            Token::Sign(">") => return Some((Infix::Exchanged(Less), COMPARISON)),
            Token::Sign(">=") => return Some((Infix::Exchanged(LessEqual), COMPARISON)),
            Token::Sign("<") => (Less, COMPARISON),
            Token::Sign("<=") => (LessEqual, COMPARISON),
            Token::Sign("=") => (Equal, COMPARISON),
            Token::Sign("<>") => (NotEqual, COMPARISON),
            Token::Sign("|") => (BitOr, BITS),
            Token::Sign("#") => (BitXor, BITS),
            Token::Sign("&") => (BitAnd, BITS),
            Token::Sign("<<") => (ShiftLeft, BITS),
            Token::Sign(">>") => (ShiftRight, BITS),
            Token::Sign("+") => (Add, SUM),
            Token::Sign("-") => (Subtract, SUM),
            Token::Sign("*") => (Multiply, PRODUCT),
            Token::Sign("/") => (Divide, PRODUCT),
            Token::Sign("%") => (Modulo, PRODUCT),
            _ => return None,
        };
        Some((Infix::Operator(binary), strength))
    }

    /// The right side of an operator whose left side is the code from `start` on. All of them group to the left.
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

    /// Puts the right side, the code from `middle` on, before the left one. What many of these enclose moves with each,
    /// so there is a limit to how often the code as a whole is moved: reading stays linear.
    fn exchange(&mut self, start: usize, middle: usize) -> Result<(), SyntaxError> {
        self.moved += self.code.len() - start;
        effort::spend(self.code.len() - start);
        if self.moved > DEPTH_MAX * self.code.len() {
            return Err(self.lexer.error("memory exhausted", None));
        }
        self.code[start..].rotate_left(middle - start);
        Ok(())
    }

    /// `IS [NOT] NULL`, `IS [NOT] TRUE`, `IS [NOT] FALSE`, `ISNULL`, `NOTNULL`, if one of them comes next.
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
