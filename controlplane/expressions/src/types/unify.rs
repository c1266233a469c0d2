//! Which types fit where, and what type variables stand for.
//!
//! A type may be in another one several times, so that types can become much larger than the expression: how many of their parts are
//! looked at is limited.

use super::Type;
use std::cell::Cell;

/// How many parts a type may have with everything that its variables stand for.
const LARGEST: u64 = 1_000;
/// How many parts of types are looked at in all.
const MOST: u64 = 5_000_000;

/// What is known of type variables.
#[derive(Debug, Default)]
pub struct Bindings {
    known: Vec<Option<Type>>,
    /// What was known before of variables that changed since the last question.
    before: Vec<(usize, Option<Type>)>,
    /// How many parts of types have been looked at.
    steps: Cell<u64>,
}

impl Bindings {
    /// A type of which nothing is known yet.
    pub fn fresh(&mut self) -> Type {
        self.known.push(None);
        Type::Variable(self.known.len() - 1)
    }

    /// Whether a type was too large, or all of them together: what has been said of types since then need not be true.
    pub fn is_exceeded(&self) -> bool {
        self.steps.get() >= MOST
    }

    /// Counts the parts of a type.
    pub fn count(&self, of: &Type) {
        self.count_to(of, self.steps.get() + LARGEST);
    }

    fn count_to(&self, of: &Type, end: u64) {
        if !self.step(end) {
            return;
        }
        match of {
            Type::Type(item) | Type::List(item) | Type::Optional(item) => self.count_to(item, end),
            Type::Map(key, value) => {
                self.count_to(key, end);
                self.count_to(value, end);
            }
            _ => {}
        }
    }

    /// Whether one more part may be looked at. After the last one there are no more.
    fn step(&self, end: u64) -> bool {
        let next = self.steps.get() + 1;
        let is_allowed = next < end.min(MOST);
        self.steps.set(if is_allowed { next } else { MOST });
        is_allowed
    }

    /// The type with what is known put in place of its variables.
    pub fn resolve(&self, of: &Type) -> Type {
        self.resolve_to(of, self.steps.get() + LARGEST)
    }

    fn resolve_to(&self, of: &Type, end: u64) -> Type {
        if !self.step(end) {
            return Type::Dyn;
        }
        let inside = |of: &Type| Box::new(self.resolve_to(of, end));
        match of {
            Type::Variable(number) => match self.known.get(*number).and_then(Option::as_ref) {
                Some(known) => self.resolve_to(known, end),
                None => of.clone(),
            },
            Type::Type(of) => Type::Type(inside(of)),
            Type::List(item) => Type::List(inside(item)),
            Type::Optional(item) => Type::Optional(inside(item)),
            Type::Map(key, value) => Type::Map(inside(key), inside(value)),
            _ => of.clone(),
        }
    }

    /// Whether all values fit; what follows for type variables is kept only if they do.
    pub fn all_assignable(&mut self, values: &[Type], places: &[Type]) -> bool {
        self.before.clear();
        let fits = values.len() == places.len()
            && values.iter().zip(places).all(|(value, place)| self.fits(value, place));
        if !fits {
            while let Some((number, known)) = self.before.pop() {
                if let Some(place) = self.known.get_mut(number) {
                    *place = known;
                }
            }
        }
        fits
    }

    /// Whether a value of the first type can be where the second is expected.
    pub fn assignable(&mut self, value: &Type, place: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(value), std::slice::from_ref(place))
    }

    fn fits(&mut self, value: &Type, place: &Type) -> bool {
        if !self.step(MOST) {
            return false;
        }
        if let Type::Variable(number) = place {
            let (fits, was_known) = self.substitute(value, *number);
            if fits || was_known {
                return fits;
            }
        }
        match (value, place) {
            (Type::Variable(number), _) => self.substitute(place, *number).0,
            (Type::Dyn | Type::Any | Type::Error, _) | (_, Type::Dyn | Type::Any | Type::Error) => true,
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Object(_)
                    | Type::Opaque(_)
                    | Type::Optional(_)
                    | Type::Timestamp
                    | Type::Duration
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.fits(a, c) && self.fits(b, d),
            (a, b) => is_exactly(a, b),
        }
    }

    /// Whether a variable can stand for a type, and whether it stood for one already. It then stands for the more general one.
    fn substitute(&mut self, to: &Type, number: usize) -> (bool, bool) {
        if *to == Type::Variable(number) {
            return (true, true);
        }
        let Some(known) = self.known.get(number).cloned().flatten() else {
            let is_new = !self.contains(to, number);
            if is_new {
                self.bind(number, to.clone());
            }
            return (is_new, false);
        };
        if is_exactly(to, &known) {
            return (true, true);
        }
        let fits = self.fits(to, &known);
        if fits {
            let general = more_general(to.clone(), known);
            if !self.contains(&general, number) {
                self.bind(number, general);
            }
        }
        (fits, true)
    }

    fn bind(&mut self, number: usize, to: Type) {
        if let Some(place) = self.known.get_mut(number) {
            self.before.push((number, place.replace(to)));
        }
    }

    fn contains(&self, of: &Type, variable: usize) -> bool {
        if !self.step(MOST) {
            return true;
        }
        match of {
            Type::Variable(number) => {
                let known = self.known.get(*number).and_then(Option::as_ref);
                *number == variable || known.is_some_and(|known| self.contains(known, variable))
            }
            Type::Type(item) | Type::List(item) | Type::Optional(item) => self.contains(item, variable),
            Type::Map(key, value) => self.contains(key, variable) || self.contains(value, variable),
            _ => false,
        }
    }
}

/// Whether two types are the same; objects are by their names.
pub fn is_exactly(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Object(a), Type::Object(b)) => a.name == b.name,
        (Type::Type(a), Type::Type(b))
        | (Type::List(a), Type::List(b))
        | (Type::Optional(a), Type::Optional(b)) => is_exactly(a, b),
        (Type::Map(a, b), Type::Map(c, d)) => is_exactly(a, c) && is_exactly(b, d),
        (a, b) => a == b,
    }
}

/// Of two types that fit each other the one that says less.
pub fn more_general(a: Type, b: Type) -> Type {
    if says_less(&a, &b) { a } else { b }
}

/// Whether the first of two types is the same or says less.
fn says_less(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Any | Type::Variable(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Variable(_)) => false,
        (Type::Type(_), Type::Type(_)) => true,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => says_less(a, b),
        (Type::Map(a, b), Type::Map(c, d)) => says_less(a, c) && says_less(b, d),
        (a, b) => is_exactly(a, b),
    }
}

/// The type with its variables replaced: those of an overload are numbered from 0.
pub fn renamed(of: &Type, variables: &[Type]) -> Type {
    match of {
        Type::Variable(number) => variables.get(*number).cloned().unwrap_or(Type::Dyn),
        Type::Type(of) => Type::type_of(renamed(of, variables)),
        Type::List(item) => Type::list(renamed(item, variables)),
        Type::Optional(item) => Type::Optional(Box::new(renamed(item, variables))),
        Type::Map(key, value) => {
            Type::Map(Box::new(renamed(key, variables)), Box::new(renamed(value, variables)))
        }
        _ => of.clone(),
    }
}
