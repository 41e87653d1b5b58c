//! Operands: constants, variables, parentheses, prefix operators, functions, CASE.

use super::{ANY, NOT, Parser, SIGN, SUM};
use crate::expression::code::{Arity, Function, Operation};
use crate::expression::error::SyntaxError;
use crate::expression::lexer::{Keyword, Token};
use crate::value::Value;

impl Parser<'_, '_> {
    /// Parses an operand.
    pub(super) fn operand(&mut self) -> Result<(), SyntaxError> {
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
