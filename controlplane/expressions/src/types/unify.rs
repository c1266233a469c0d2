//! Which types fit where, and what type variables stand for.

use super::Type;

/// What is known of type variables.
#[derive(Debug, Clone, Default)]
pub struct Bindings(Vec<Option<Type>>);

impl Bindings {
    /// A type of which nothing is known yet.
    pub fn fresh(&mut self) -> Type {
        self.0.push(None);
        Type::Variable(self.0.len() - 1)
    }

    /// The type with what is known put in place of its variables.
    pub fn resolve(&self, of: &Type) -> Type {
        match of {
            Type::Variable(number) => match self.0.get(*number).and_then(Option::as_ref) {
                Some(known) => self.resolve(known),
                None => of.clone(),
            },
            Type::List(item) => Type::list(self.resolve(item)),
            Type::Optional(item) => Type::Optional(Box::new(self.resolve(item))),
            Type::Map(key, value) => Type::Map(Box::new(self.resolve(key)), Box::new(self.resolve(value))),
            _ => of.clone(),
        }
    }

    /// Whether all values fit; what follows for type variables is kept only if they do.
    pub fn all_assignable(&mut self, values: &[Type], places: &[Type]) -> bool {
        let mut tried = self.clone();
        let fits = values.len() == places.len()
            && values.iter().zip(places).all(|(value, place)| tried.fits(value, place));
        if fits {
            *self = tried;
        }
        fits
    }

    /// Whether a value of the first type can be where the second is expected.
    pub fn assignable(&mut self, value: &Type, place: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(value), std::slice::from_ref(place))
    }

    fn fits(&mut self, value: &Type, place: &Type) -> bool {
        let (value, place) = (self.resolve(value), self.resolve(place));
        match (&value, &place) {
            (Type::Variable(a), Type::Variable(b)) if a == b => true,
            (_, Type::Variable(number)) => self.bind(*number, &value),
            (Type::Variable(number), _) => self.bind(*number, &place),
            (Type::Dyn | Type::Error, _) | (_, Type::Dyn | Type::Error) => true,
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Object(_)
                    | Type::Opaque(_)
                    | Type::Optional(_)
                    | Type::Timestamp
                    | Type::Duration
            ),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.fits(a, c) && self.fits(b, d),
            (Type::Object(a), Type::Object(b)) => a.name == b.name,
            (a, b) => a == b,
        }
    }

    fn bind(&mut self, number: usize, to: &Type) -> bool {
        if contains(to, number) {
            return false;
        }
        if let Some(place) = self.0.get_mut(number) {
            *place = Some(to.clone());
        }
        true
    }
}

fn contains(of: &Type, variable: usize) -> bool {
    match of {
        Type::Variable(number) => *number == variable,
        Type::List(item) | Type::Optional(item) => contains(item, variable),
        Type::Map(key, value) => contains(key, variable) || contains(value, variable),
        _ => false,
    }
}

/// The type with its variables replaced: those of an overload are numbered from 0.
pub fn renamed(of: &Type, variables: &[Type]) -> Type {
    match of {
        Type::Variable(number) => variables.get(*number).cloned().unwrap_or(Type::Dyn),
        Type::List(item) => Type::list(renamed(item, variables)),
        Type::Optional(item) => Type::Optional(Box::new(renamed(item, variables))),
        Type::Map(key, value) => {
            Type::Map(Box::new(renamed(key, variables)), Box::new(renamed(value, variables)))
        }
        _ => of.clone(),
    }
}
