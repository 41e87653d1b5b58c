//! Code of expressions: operations of a stack machine, in pgbench's order of evaluation.

use crate::value::Value;
use crate::variables::Slot;

/// An operation. It pops its operands and pushes its result.
///
/// Skips count operations and only go forward, so that every evaluation ends and code is relocatable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// Pushes a constant.
    Constant(Value),
    /// Pushes the value of a variable.
    Variable(Slot),
    /// Negation: 0 minus the operand.
    Negate,
    /// Bitwise NOT.
    Complement,
    /// Logical NOT.
    Not,
    /// Tests for identity with null or a boolean.
    Is(Value),
    /// Binary operator.
    Binary(Binary),
    /// Function with this number of arguments.
    Call(Function, u32),
    /// AND after its left side: if that is null or false, skips the right side and [`Operation::AndEnd`].
    AndThen(u32),
    /// AND after its right side, which is the result.
    AndEnd,
    /// OR after its left side: skips the rest if that is null or true.
    OrElse(u32),
    /// OR after its right side, which is the result.
    OrEnd,
    /// Skips a branch of CASE if its condition is not true.
    Unless(u32),
    /// Skips the rest of CASE after a branch.
    CaseSkip(u32),
    /// End of CASE with this number of conditions and an ELSE. No effect.
    CaseEnd(u32),
}

/// Binary operators. `>` and `>=` are `<` and `<=` with exchanged operands, also in the order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Self-explanatory.
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Equal,
    NotEqual,
    Less,
    LessEqual,
}

impl Binary {
    /// Its sign in the source.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "#",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessEqual => "<=",
        }
    }
}

/// Functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named as in pgbench's manual.
pub enum Function {
    Abs,
    Debug,
    Double,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Least,
    Ln,
    Mod,
    Permute,
    Pi,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    Sqrt,
}

/// Number of arguments of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many.
    Exactly(u32),
    /// One or more.
    OneOrMore,
    /// This many and an optional seed, by default `:default_seed`.
    AndSeed(u32),
}

const FUNCTIONS: [(&str, Function, Arity); 21] = [
    ("abs", Function::Abs, Arity::Exactly(1)),
    ("debug", Function::Debug, Arity::Exactly(1)),
    ("double", Function::Double, Arity::Exactly(1)),
    ("exp", Function::Exp, Arity::Exactly(1)),
    ("greatest", Function::Greatest, Arity::OneOrMore),
    ("hash", Function::HashMurmur2, Arity::AndSeed(1)),
    ("hash_fnv1a", Function::HashFnv1a, Arity::AndSeed(1)),
    ("hash_murmur2", Function::HashMurmur2, Arity::AndSeed(1)),
    ("int", Function::Int, Arity::Exactly(1)),
    ("least", Function::Least, Arity::OneOrMore),
    ("ln", Function::Ln, Arity::Exactly(1)),
    ("mod", Function::Mod, Arity::Exactly(2)),
    ("permute", Function::Permute, Arity::AndSeed(2)),
    ("pi", Function::Pi, Arity::Exactly(0)),
    ("pow", Function::Power, Arity::Exactly(2)),
    ("power", Function::Power, Arity::Exactly(2)),
    ("random", Function::Random, Arity::Exactly(2)),
    ("random_exponential", Function::RandomExponential, Arity::Exactly(3)),
    ("random_gaussian", Function::RandomGaussian, Arity::Exactly(3)),
    ("random_zipfian", Function::RandomZipfian, Arity::Exactly(3)),
    ("sqrt", Function::Sqrt, Arity::Exactly(1)),
];

impl Function {
    /// Finds a function by name, case-insensitive. Returns its name in messages, the function, and its arity.
    #[must_use]
    pub fn find(word: &[u8]) -> Option<(&'static str, Self, Arity)> {
        FUNCTIONS.into_iter().find(|(name, _, _)| word.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The first of its names.
    #[must_use]
    pub fn name(self) -> &'static str {
        FUNCTIONS.iter().find(|(_, function, _)| *function == self).map_or("", |(name, _, _)| name)
    }
}
