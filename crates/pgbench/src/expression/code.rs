//! What an expression is compiled to: operations on a stack, in the order in which pgbench evaluates.

use crate::value::Value;
use crate::variables::Slot;

/// An operation. What it needs is on top of the stack and is replaced by its result. A skip counts operations and goes
/// forward only, so every evaluation ends, and code can be moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// Puts a constant.
    Constant(Value),
    /// Puts the value of a variable.
    Variable(Slot),
    /// 0 minus it.
    Negate,
    /// All bits turned.
    Complement,
    /// Logical.
    Not,
    /// Whether it is this very null or boolean.
    Is(Value),
    /// Takes two.
    Binary(Binary),
    /// Takes this many arguments.
    Call(Function, u32),
    /// The left side of AND decides where it is null or false: then the right side and [`Operation::AndEnd`] are skipped.
    AndThen(u32),
    /// The right side of AND is its result.
    AndEnd,
    /// The left side of OR decides where it is null or true.
    OrElse(u32),
    /// The right side of OR is its result.
    OrEnd,
    /// Skips a branch of CASE where its condition does not hold.
    Unless(u32),
    /// Skips what is left of CASE after a branch.
    CaseSkip(u32),
    /// CASE with this many conditions and an ELSE ends. It does nothing.
    CaseEnd(u32),
}

/// Operators between two values. `>` and `>=` are `<` and `<=` with the sides exchanged, in the order of evaluation, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // They are their own meaning.
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
    /// How it is written.
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
#[allow(missing_docs)] // pgbench's manual has them by these names.
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

/// How many arguments a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// This many.
    Exactly(u32),
    /// One or more.
    OneOrMore,
    /// This many, and a seed; without it `:default_seed` is one.
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
    /// The function that a word names, in capitals or not: its name in messages, itself, how many arguments it takes.
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
